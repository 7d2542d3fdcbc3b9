"""What can go wrong in the store, drawn as a tree. All are ours, none is a client's or a backend's fault.

StoreError            a save or a read did not take place; the mirror counts ``store_failed``
├── StoreFull         the writer's queue is full: too much is coming in for the disk
├── StreamFull        the stream to the workers is full; the mirror counts ``queue_full``
├── StoreClosed       the store was closed
├── SchemaTooNew      the database was written by a newer Crossfade; refuse it and say so
├── KeyUnusable       the master key is missing, not one, or not the one that this store was written with
└── CorruptBody       a stored body is not what was put in its place
"""

from __future__ import annotations


class StoreError(Exception):
    """The store could not do what was asked."""


class StoreFull(StoreError):
    """The bounded queue of the writer is full."""


class StreamFull(StoreError):
    """The bounded stream to the workers is full."""


class StoreClosed(StoreError):
    """The store is closed."""


class SchemaTooNew(StoreError):
    """The database has a newer schema than this version knows."""


class KeyUnusable(StoreError):
    """The master key cannot be used; the message says what to do."""


class CorruptBody(StoreError):
    """A stored body is not what was once stored."""
