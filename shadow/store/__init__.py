"""Where exchanges and accounts are kept: ``store.py`` writes, ``reader.py`` reads, nothing lies there in the clear."""
