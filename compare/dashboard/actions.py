"""What a page can change: a label on a pair, a ramp. Each change is audited with who made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from compare.dashboard.boundary import visitor_of
from compare.dashboard.errors import Trouble, TroubleRaised, no_such, refused
from compare.dashboard.material import Audit
from compare.dashboard.security import local_path
from compare.dashboard.sources import Sources
from compare.dashboard.views.overview import page_of
from compare.labels import Judgment, Label, Labels
from compare.phrases import mark, say
from compare.ramps import RampRefused, Ramps

_UNKNOWN = Trouble(
    400, "bad_request", say("This form says nothing that is known here."), say("Reload the page and try again.")
)


class Actions:
    """The handlers of forms. They block. Without ``ramps`` the page cannot move traffic."""

    def __init__(
        self, sources: Sources, labels: Labels, ramps: Ramps | None, audit: Audit, now: Callable[[], datetime]
    ) -> None:
        self._sources, self._labels, self._ramps = sources, labels, ramps
        self._audit, self._now = audit, now

    def label(self, request: Request, form: Mapping[str, str]) -> Response:
        """Put a label on a pair, and lead back to it (or on to the next)."""
        exchange = self._sources.exchange(request.path_params["id"])
        if form.get("label") not in list(Judgment):
            raise TroubleRaised(_UNKNOWN)
        measurement = self._sources.measurement(exchange)
        found = measurement.judgement.diagnoses if measurement is not None else ()
        who = visitor_of(request).name
        label = Label(
            exchange.id, exchange.route, found[0].code if found else "", Judgment(form["label"]), who, self._now()
        )
        self._note("pair_labelled", who, exchange.route, exchange=exchange.id, label=label.label.value)
        self._labels.add(label)
        return RedirectResponse(local_path(form.get("next", "/")), 303)

    def ramp(self, request: Request, form: Mapping[str, str]) -> Response:
        """Start, pause or abort a ramp, and lead back to the route."""
        route = request.path_params["route"]
        action, who = form.get("action", ""), visitor_of(request).name
        if self._ramps is None or route not in self._sources.policies:  # not asked of the store, which may be away
            raise no_such(mark("ramp of"), route)
        if action not in ("start", "pause", "abort"):
            raise TroubleRaised(_UNKNOWN)
        self._note(f"ramp_{action}", who, route)
        try:
            {"start": self._ramps.start, "pause": self._ramps.pause, "abort": self._ramps.abort}[action](route, who)
        except RampRefused as error:
            raise refused(error.why) from error
        except (ValueError, OSError) as error:  # what the file or the API server does not allow
            raise refused(str(error)) from error
        return RedirectResponse(f"{page_of(route)}#ramp", 303)

    def _note(self, event: str, who: str, route: str, **more: str) -> None:
        self._audit({"at": self._now().isoformat(), "event": event, "who": who, "route": route, **more})
