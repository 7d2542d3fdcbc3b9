"""How the tests are dealt out when there are several workers (`pytest -n 2`): what belongs together stays together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdist.scheduler import LoadScopeScheduling

GROUPS: Mapping[str, str] = {
    "tests/e2e/test_demo.py": "demo",
    "tests/onprem_backend/": "models",
    "tests/compare/dashboard/": "dashboard",
}
"""Which files make one group, by the beginning of their paths: those that share a server which is dear, or ports that
are given. Any other file is a group by itself. Long groups first, for what begins last should be short."""


def group_of(test: str) -> str:
    """Return the group of a test by its id."""
    path = test.partition("::")[0]
    return next((group for beginning, group in GROUPS.items() if path.startswith(beginning)), path)


def rank_of(test: str) -> int:
    """Return the place of a test's group among the long ones; all others come behind them as they are."""
    order = list(dict.fromkeys(GROUPS.values()))
    group = group_of(test)
    return order.index(group) if group in order else len(order)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker one group after the other, in the order of the tests."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
