"""Times as people write them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the UTC time of ``2h`` (so long ago; s, m, h, d, w), ``2026-05-04`` or ``2026-05-04T12:30`` (UTC unless it
    says otherwise). Raises ``ValueError`` with how to write one."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        found = datetime.fromisoformat(text.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"'{text}' is no time: write 2h or 7d (ago), 2026-05-04 or 2026-05-04T12:30 (UTC)") from error
