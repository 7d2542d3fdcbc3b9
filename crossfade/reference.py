"""The reference of settings, error codes and metrics, made from the code: docs/reference.md can't drift.

Write it anew with ``python -m crossfade.reference > docs/reference.md``; a test compares the two.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import Metric
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from compare.dashboard import errors as dashboard_errors
from compare.dashboard.errors import Trouble
from crossfade.config.loading import models_in
from crossfade.config.model import Config
from crossfade.worker_page import View, families
from gateway import problem as gateway_problems
from gateway.fleet import Fleet
from gateway.metrics import Metrics
from gateway.observe import FleetCollector, Ledger, LedgerCollector
from gateway.problem import Problem
from gateway.traffic import Traffic
from onprem_backend.problems import CODES
from onprem_backend.settings import SWITCHES, VARIABLES, Settings
from shadow.exchange import SkipReason
from shadow.worker import Work


def render() -> str:
    """Return the whole page as Markdown."""
    gateway = [(p.code, p.status, p.detail) for p in vars(gateway_problems).values() if isinstance(p, Problem)]
    dashboard = [(t.code, t.status, t.title) for t in vars(dashboard_errors).values() if isinstance(t, Trouble)]
    parts = [
        "# Reference",
        "Made from the code by `python -m crossfade.reference`; do not edit.",
        "## Settings of the config file",
        _table(("key", "default", "what it is"), config_keys()),
        "## Environment of the on-prem server",
        "Each overrides the default of the setting of the same name; `onprem_backend/settings.py` says what they mean.",
        _table(("variable", "setting", "default"), onprem_variables()),
        "## Error codes of the gateway",
        "Answers are problem+json (RFC 9457); `code` is stable.",
        _table(("code", "status", "meaning"), gateway),
        "## Error codes of the on-prem server",
        _table(("code", "status"), CODES.items()),
        "## Error codes of the dashboard",
        _table(("code", "status", "meaning"), dashboard),
        "## Metrics of the gateway",
        _table(("metric", "type", "what it counts"), metrics()),
        "## Metrics of a worker",
        "With `crossfade shadow work --metrics ADDRESS`.",
        _table(("metric", "type", "what it counts"), _described(families(View(Work(), 0, {"breakers": {}}, (0, 0))))),
        "## Why a received request was not recorded",
        ", ".join(f"`{reason}`" for reason in SkipReason) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def config_keys(model: type[BaseModel] = Config, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (key, default, description) of every setting, depth first."""
    for name, field in model.model_fields.items():
        annotation, key = str(field.annotation), f"{path}{name}"
        nested = list(models_in(field.annotation))
        yield key, "" if nested else _default(field.default), field.description or ""
        suffix = (
            ".NAME"
            if annotation.startswith(("dict", "typing.Annotated[dict"))
            else "[]"
            if "tuple[" in annotation
            else ""
        )
        for inner in nested:
            yield from config_keys(inner, f"{key}{suffix}.")


def onprem_variables() -> Iterator[tuple[str, str, str]]:
    """Yield (variable, setting, default) of the on-prem server."""
    for variable, feature in SWITCHES.items():
        yield variable, f"whether {feature} is served", "`1`"
    defaults = Settings()
    for variable, (name, _) in VARIABLES.items():
        yield variable, f"`{name}`", f"`{getattr(defaults, name)}`"


def metrics() -> Iterator[tuple[str, str, str]]:
    """Yield (name, type, help) of every metric of the gateway."""
    gateway = [
        *Metrics().registry.collect(),
        *LedgerCollector(Ledger(Traffic(), None), list).collect(),
        *FleetCollector(Fleet(time.monotonic, random.SystemRandom())).collect(),
    ]
    yield from _described(gateway)


def _described(families: Iterable[Metric]) -> Iterator[tuple[str, str, str]]:
    for family in families:
        suffix = "_total" if family.type == "counter" else ""
        yield f"{family.name}{suffix}", family.type, family.documentation


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, SecretStr):
        return f"`{value.get_secret_value()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return "none" if value is None else f"`{value}`"


def _table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = tuple(heads)
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for first, *rest in rows:
        lines.append(" | ".join([f"`{first}`", *(str(cell).replace("|", "\\|") for cell in rest)]))
    return "\n".join(f"| {line} |" for line in lines)


if __name__ == "__main__":
    print(render(), end="")
