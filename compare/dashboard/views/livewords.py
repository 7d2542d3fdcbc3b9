"""A look at what moves, in words: by the names of the places on the page that they go to. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from compare.dashboard.snapshot import Snapshot
from compare.dashboard.views.words import NOTHING, size
from compare.phrases import joined, plain, plural, say
from compare.table import share


def rate(value: float | None) -> str:
    """Return a rate for a person."""
    if value is None:
        return NOTHING
    whole = value >= 10 or value == 0
    return say("{n:.0f} requests/s", n=value) if whole else say("{n:.1f} requests/s", n=value)


def live_texts(snapshot: Snapshot) -> dict[str, str]:
    """Return what stands where: ``rate``, ``rate:ROUTE``, ``mirror``, ``queue``, ``budget``, ``breakers``, ``store``,
    ``limits``, ``job``."""
    known = [value for value in snapshot.rates.values() if value is not None]
    texts = {f"rate:{route}": rate(value) for route, value in snapshot.rates.items()}
    texts["rate"] = rate(sum(known)) if known else NOTHING
    texts["job"] = _job(snapshot)
    return {**texts, **(_gateway(snapshot) if snapshot.gateway.reached else _UNREACHED)}


def live_bars(snapshot: Snapshot) -> dict[str, float]:
    """Return percents of bars: ``budget`` and ``job``."""
    used, total = _budget(snapshot.gateway.mirror)
    stored = sum(p.stored for p in snapshot.progress.values())
    measured = sum(min(p.measured, p.stored) for p in snapshot.progress.values())
    return {"budget": 100 * used / total if total else 0.0, "job": 100 * measured / stored if stored else 0.0}


_UNREACHED = {
    "rate": say("no gateway answers"),
    "mirror": say("The gateway does not answer here; name it with --gateway."),
    "queue": NOTHING,
    "budget": NOTHING,
    "breakers": NOTHING,
    "store": NOTHING,
    "limits": NOTHING,
}


def _gateway(snapshot: Snapshot) -> dict[str, str]:
    mirror = snapshot.gateway.mirror
    used, total = _budget(mirror)
    breakers = mirror.get("breakers")
    closed = isinstance(breakers, Mapping) and all(state == "closed" for state in breakers.values())
    tripped = (
        {name: state for name, state in breakers.items() if state != "closed"} if isinstance(breakers, Mapping) else {}
    )
    works = bool(mirror.get("store_works", True))
    defects = _whole(mirror.get("defects"))
    fine = works and not tripped and not defects
    return {
        "mirror": (say("healthy") if fine else say("needs a look")) if mirror else say("nothing is mirrored"),
        "queue": say(
            "{queued:,} waiting, {under_way:,} under way",
            queued=_whole(mirror.get("queued")),
            under_way=_whole(mirror.get("in_flight")),
        ),
        "budget": say("{used} of {total} ({share})", used=size(used), total=size(total), share=share(used / total))
        if total
        else NOTHING,
        "breakers": say("all closed")
        if closed
        else joined(", ", (joined(" ", (name, plain(str(state)))) for name, state in tripped.items())),
        "store": say("writes") if works else say("does not write: exchanges are lost"),
        "limits": _limits(snapshot.gateway.refused),
    }


def _budget(mirror: Mapping[str, object]) -> tuple[int, int]:
    return _whole(mirror.get("budget_used_bytes")), _whole(mirror.get("budget_total_bytes"))


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _limits(refused: Mapping[str, int]) -> str:
    hit = sorted(((n, route) for route, n in refused.items() if n), reverse=True)
    return joined(", ", (joined(" ", (route, plural(n, "time"))) for n, route in hit[:5])) or say("none hit")


def _job(snapshot: Snapshot) -> str:
    waiting = sum(max(0, p.stored - p.measured) for p in snapshot.progress.values())
    if snapshot.comparing:
        routes = ", ".join(sorted(snapshot.comparing)[:3])
        return say("comparing {routes}: {requests} to go", routes=routes, requests=plural(waiting, "request"))
    if not waiting:
        return say("everything recorded is compared")
    return say("{requests} wait for the next comparison", requests=plural(waiting, "request"))
