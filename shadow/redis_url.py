"""What the URL of a Redis must be, found out at the start and not by the first request."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

_DATABASE = re.compile(r"/?[0-9]*")
_MEANING = (
    "must be a URL such as redis://:password@host:6379/0, with options that the client library knows; what is special "
    "in a password, such as # / ? @ %, must be percent-encoded"
)


def check_redis_url(url: str) -> str:
    """Return the URL. Raises ``ValueError`` for one that no connection can be made of, with a message that quotes
    nothing of it: the library's would quote a part of the password."""
    try:
        parts = urlsplit(url)
        pool = ConnectionPool.from_url(url)
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError, RedisError):
        raise ValueError(_MEANING) from None
    is_somewhere = parts.path if parts.scheme == "unix" else parts.hostname and _DATABASE.fullmatch(parts.path)
    if not is_somewhere or parts.fragment:
        raise ValueError(_MEANING)
    return url
