"""Comparators: pure functions of (request, baseline output, candidate output, policy) that answer with a judgement.

Deterministic, and they never raise on input: what cannot be judged is an answer too.
"""
