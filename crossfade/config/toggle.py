"""Write the toggle: change ``active`` of one route in the config file, keep its comments, leave an audit line.

The file is the one truth. A change is made on the parsed text, checked as a whole config, written to a temporary
file beside it and renamed over it, so a reader sees the old file or the new one and never half of either. A lock file
keeps two writers from losing each other's change.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from crossfade.audit import open_audit, write_line
from crossfade.config.loading import ConfigError, load_config, parse_config
from crossfade.config.model import Config, RouteConfig


@dataclass(frozen=True, slots=True)
class Change:
    """What a toggle did: percents by backend before and after."""

    route: str
    before: Mapping[str, int]
    after: Mapping[str, int]


def parse_split(words: Sequence[str], pair: tuple[str, str]) -> dict[str, int]:
    """Read ``onprem``, ``onprem=5`` or ``cloud=95 onprem=5`` into percents of the two backends in ``pair``.

    What is not named gets the rest. Raises ``ValueError`` that says what is wrong.
    """
    split: dict[str, int] = {}
    for word in words:
        name, equals, percent = word.partition("=")
        if name not in pair:
            raise ValueError(f"{name} is no backend of this route; it has {pair[0]} and {pair[1]}")
        if name in split:
            raise ValueError(f"{name} is named twice")
        if equals and not percent.rstrip("%").isdecimal():
            raise ValueError(f"'{percent}' is no whole percent; write {name}=5")
        if not equals and len(words) > 1:
            raise ValueError(f"give every backend a percent, such as {name}=5")
        split[name] = int(percent.rstrip("%")) if equals else 100
    if max(split.values()) > 100:
        raise ValueError("a percent is at most 100")
    if len(split) == 1:
        other = pair[1] if pair[0] in split else pair[0]
        split[other] = 100 - sum(split.values())
    if sum(split.values()) != 100:
        raise ValueError(f"the percents must sum to 100, not {sum(split.values())}")
    return {name: split[name] for name in pair if split[name]}


def write_toggle(path: Path, route: str, words: Sequence[str], *, who: str, now: datetime) -> Change:
    """Set ``active`` of ``route`` in the file at ``path`` to what ``words`` say (see ``parse_split``).

    Raises ``ValueError`` with a message for a person, and changes nothing, when it may not.
    """
    path = path.resolve()
    with _locked(path):
        audit_path = Path(load_config(path, secrets=False).audit)
        text, change = edit_toggle(path.read_bytes().decode("utf-8"), route, words, name=str(path))
        with open_toggle_audit(audit_path) as audit:  # before the change: none goes unrecorded
            if change.before != change.after:
                _replace(path, text)
            write_line(audit, audit_line(change, who, now))
    return change


class FileToggle:
    """The toggle in a config file, as a ramp moves it (``compare.ramps.ToggleWriter``)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def percent(self, route: str) -> int:
        """Return what the candidate serves by the file. Raises ``ConfigError``."""
        return candidate_percent(load_config(self._path, secrets=False), route)

    def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
        """Give the candidate so much. Raises ``ConfigError`` or ``OSError``, having changed nothing."""
        candidate = _route(load_config(self._path, secrets=False), route).candidate
        write_toggle(self._path, route, [f"{candidate}={percent}"], who=who, now=now)


def edit_toggle(text: str, route: str, words: Sequence[str], *, name: str) -> tuple[str, Change]:
    """Return the text of a config file with only ``active`` of ``route`` changed, and what that changes.

    ``name`` is what errors call the file. Raises ``ValueError`` where the text, the words or the place do not allow it.
    """
    before = parse_config(text, name=name, secrets=False)
    current = _route(before, route)
    split = parse_split(words, (current.baseline, current.candidate))
    change = Change(route, current.split, split)
    edited = _edit(text, route, split)
    try:
        after = parse_config(edited, name=name, secrets=False)
        is_right = _route(after, route).split == split and _without_active(after, route) == _without_active(
            before, route
        )
    except ConfigError:  # what was replaced held an anchor that is needed elsewhere
        is_right = False
    if not is_right:
        raise ConfigError(
            f"{name}: active of {route} is written in a way that cannot be edited (an alias?); set it by hand"
        )
    return edited, change


def candidate_percent(config: Config, route: str) -> int:
    """Return what the candidate of a route serves. Raises ``ConfigError`` where there is no such route."""
    found = _route(config, route)
    return found.split.get(found.candidate, 0)


def _route(config: Config, name: str) -> RouteConfig:
    for route in config.routes:
        if route.name == name:
            return route
    raise ConfigError(f"there is no route {name}; the config has {', '.join(r.name for r in config.routes)}")


def _without_active(config: Config, name: str) -> Config:
    """Return the config with nothing said of the toggle of one route: what a change of it must leave alone."""
    routes = [route.model_copy(update={"active": None}) if route.name == name else route for route in config.routes]
    return config.model_copy(update={"routes": routes})


def _edit(text: str, route: str, split: Mapping[str, int]) -> str:
    """Return ``text`` with only the value of ``active`` replaced; every other byte stays as it was."""
    routes = _value(YAML().compose(text), "routes")
    entry = next((node for node in routes.value if _value(node, "name").value == route), None)
    old = _value(entry, "active")
    if isinstance(old, MappingNode) and not old.flow_style and {name.value for name, _ in old.value} >= set(split):
        changes = [(value, str(split.get(name.value, 0))) for name, value in old.value]
    else:
        changes = [(old, _flow(split))]
    for node, new in reversed(changes):  # from the end, so that the places before stay right
        end = node.value[-1][1].end_mark if isinstance(node, MappingNode) and not node.flow_style else node.end_mark
        text = text[: node.start_mark.index] + new + text[end.index :]
    return text


def _value(mapping: Any, key: str) -> Any:
    found = next((value for name, value in getattr(mapping, "value", []) if getattr(name, "value", None) == key), None)
    if found is None:
        raise ConfigError(f"{key} is written in a way that cannot be edited (a merge key?); set it by hand")
    return found


def _flow(split: Mapping[str, int]) -> str:
    whole = [name for name, percent in split.items() if percent == 100]
    return whole[0] if whole else "{" + ", ".join(f"{name}: {percent}" for name, percent in split.items()) + "}"


def _replace(path: Path, text: str) -> None:
    before = path.stat()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, before.st_mode)
        with suppress(PermissionError):  # another owner is kept where this user may do that
            os.chown(temporary, before.st_uid, before.st_gid)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path.with_name(f".{path.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_toggle_audit(path: Path) -> TextIO:
    """Open the audit file before a change is made. Raises ``ConfigError``."""
    try:
        return open_audit(path)
    except OSError as error:
        raise ConfigError(f"the audit file {path} cannot be written, so nothing was changed: {error}") from error


def audit_line(change: Change, who: str, now: datetime) -> dict[str, Any]:
    """Return the audit's line for a change."""
    return {
        "at": now.isoformat(timespec="milliseconds"),
        "who": who,
        "action": "toggle",
        "route": change.route,
        "before": dict(change.before),
        "after": dict(change.after),
    }
