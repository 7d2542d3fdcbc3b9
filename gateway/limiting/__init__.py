"""How many requests, bytes and simultaneous requests are let through, and who is counted with whom.

``rules`` what a limit is · ``counting`` counters in this process · ``store`` and ``decide.lua`` the same on Redis ·
``queueing`` waiting for a slot · ``verdict`` what a decision means for the client · ``limiter`` puts them together.
"""
