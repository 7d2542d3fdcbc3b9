"""The audit file: one line of JSON for every change of the toggle and every reveal of a body."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO


def open_audit(path: Path) -> TextIO:
    """Open the file for appending; it is made readable by its owner alone. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "a", encoding="utf-8", opener=_private)


def write_line(audit: TextIO, line: Mapping[str, object]) -> None:
    """Append one line and hand it to the system at once, so that lines of several writers do not mix."""
    audit.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    audit.flush()


def append_line(path: Path, line: Mapping[str, object]) -> None:
    """Open, append, close."""
    with open_audit(path) as audit:
        write_line(audit, line)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
