"""Bodies in an S3-compatible object store, through obstore (Rust's object_store; needs ``crossfade[s3]``).

``s3://BUCKET/PREFIX?endpoint=http://…&region=…``. Credentials come from the environment, as for every S3 client
(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a web identity, or the instance's own), never from the config.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from shadow.breaker import Breaker
from shadow.errors import StoreError
from shadow.store.objects import check_day, check_name, is_day

try:
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import S3Store
except ModuleNotFoundError as error:
    raise StoreError("bodies in S3 need one more package: pip install 'crossfade[s3]'") from error

CONNECT_TIMEOUT_S = 2.0
TIMEOUT_S = 10.0
RETRY_FOR_S = 5.0
RESET_S = 2.0
_OPTIONS = frozenset({"endpoint", "region"})
_log = logging.getLogger(__name__)


class Bucket:
    """A prefix of a bucket. A request that fails is tried again once; then, for two seconds, all others fail at once,
    so that a store which is away does not hold up the exchanges that need none of it."""

    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._breaker = Breaker(failures=1, reset_s=RESET_S)
        self._lock = threading.Lock()

    @classmethod
    def open(cls, url: str) -> Bucket:
        """Return the bucket at ``url`` without calling it. Raises ``StoreError`` for a URL that cannot be one."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        if not parts.hostname or parts.username or set(query) - _OPTIONS:
            raise StoreError("must be s3://BUCKET/PREFIX?endpoint=URL&region=NAME, without credentials")
        endpoint = query.get("endpoint", [None])[0]
        config = {"region": query.get("region", ["us-east-1"])[0]}
        if endpoint is not None:
            config["endpoint"] = endpoint
        return cls(
            S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                config=config,  # type: ignore[arg-type]
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                    "timeout": timedelta(seconds=TIMEOUT_S),
                },
                retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=RETRY_FOR_S)},
            )
        )

    def put(self, name: str, make: Callable[[], Iterable[bytes]]) -> None:
        """Upload in one request (several for more than 5 MiB). Raises ``StoreError``."""
        with self._request():
            # Joined: obstore reads an iterator on a thread of its own and splits it into requests as it likes.
            self._store.put(check_name(name), b"".join(make()))

    def get(self, name: str) -> bytes | None:
        """Download. Raises ``StoreError``."""
        with self._request():
            try:
                return bytes(self._store.get(check_name(name)).bytes())
            except (NotFoundError, FileNotFoundError):
                return None

    def delete(self, names: Iterable[str]) -> None:
        """Delete, a thousand in one request."""
        with self._request():
            paths = [check_name(name) for name in names]
            for start in range(0, len(paths), 1000):
                self._store.delete(paths[start : start + 1000])

    def days(self) -> list[str]:
        """List the prefixes that are days."""
        with self._request():
            found = self._store.list_with_delimiter()["common_prefixes"]
        return sorted(name for prefix in found if is_day(name := prefix.rstrip("/").rpartition("/")[2]))

    def delete_day(self, day: str) -> int:
        """Delete all below the day's prefix."""
        count = 0
        with self._request():
            for page in self._store.list(f"{check_day(day)}/"):
                paths = [item["path"] for item in page]
                self._store.delete(paths)
                count += len(paths)
        return count

    @contextmanager
    def _request(self) -> Iterator[None]:
        with self._lock:
            turn = self._breaker.admit(time.monotonic())
        if not turn:
            raise StoreError("the object store failed a moment ago")
        try:
            yield
        except (BaseError, OSError) as error:
            _log.debug("the object store failed", exc_info=error)
            with self._lock:
                self._breaker.fail(turn, time.monotonic())
            raise StoreError(f"the object store failed: {type(error).__name__}") from error
        except BaseException:
            with self._lock:
                self._breaker.abandon(turn)
            raise
        with self._lock:
            self._breaker.succeed(turn)
