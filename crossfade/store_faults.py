"""What goes wrong in the store, as a command says it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from crossfade.config.loading import ConfigError
from shadow.errors import StoreError


@contextmanager
def store_faults() -> Iterator[None]:
    """Turn what the store, its database or its folder says into a ``ConfigError`` with a message for a person."""
    try:
        yield
    except DBAPIError as error:
        raise ConfigError(f"the store: {error.orig}") from error
    except (StoreError, OSError) as error:
        raise ConfigError(f"the store: {error}") from error
