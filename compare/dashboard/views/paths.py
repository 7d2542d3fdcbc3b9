"""The JSON paths that differ, as a tree: each with its share of pairs beside the share that is noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compare.dashboard.views.labelling import ignore_lines
from compare.dashboard.views.words import NOTHING
from compare.diagnosis import PathCount
from compare.phrases import say

_DEEPEST = 8
_UNFOLDED = 40


@dataclass(frozen=True, slots=True)
class PathRow:
    """A path that differs: shares of pairs and of control calls in percent, and the lines that would ignore it."""

    path: str
    raw: float
    raw_text: str
    noise: float
    noise_text: str
    draft: str


@dataclass(slots=True)
class PathNode:
    """A field. ``rows`` differ themselves, ``children`` have something below them; ``worst`` is the largest share of
    pairs in percent of all below."""

    name: str
    rows: list[PathRow] = field(default_factory=list)
    children: dict[str, PathNode] = field(default_factory=dict)
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class PathTree:
    """Everything that differs; ``unfolded`` when it is little enough to be seen at once."""

    root: PathNode
    unfolded: bool


def build_paths(found: Sequence[PathCount]) -> PathTree | None:
    """Return the tree in order of path, ``None`` where no path differs."""
    if not found:
        return None
    root = PathNode("")
    for count in sorted(found, key=lambda each: each.path):
        _put(root, _row(count))
    return PathTree(root, len(found) <= _UNFOLDED)


def _put(root: PathNode, row: PathRow) -> None:
    *parents, _ = row.path.split(".", _DEEPEST)
    node = root
    node.worst = max(node.worst, row.raw)
    for name in parents:
        node = node.children.setdefault(name, PathNode(name))
        node.worst = max(node.worst, row.raw)
    node.rows.append(row)


def _row(found: PathCount) -> PathRow:
    noise = say("{n:,} of {whole:,}", n=found.noise, whole=found.controls) if found.controls else NOTHING
    return PathRow(
        found.path,
        100 * found.pairs / max(1, found.of),
        say("{n:,} of {whole:,}", n=found.pairs, whole=found.of),
        100 * found.noise / max(1, found.controls),
        noise,
        ignore_lines([found.path]),
    )
