"""What the dashboard answers when it has no page to show.

    Trouble (status, stable code, what is the matter, what to do)
      token_required   401  client   no or a wrong token
      role_too_low     403  client   known, but not for this
      foreign_form     403  client   a form of another site
      refused          409  client   a change that may not be made now
      unknown_host     421  client   a Host that is not this dashboard's (DNS rebinding)
      bad_request      400  client   an address or a form that means nothing
      not_found        404  client   no such page, route, pair or body
      body_purged      410  nobody   the row is there, its bytes are not
      not_a_picture    415  nobody   the body cannot be drawn
      body_corrupt     500  us       stored bytes are not what was stored
      too_many_pages   503  us       no more pages are kept live at once
      store_failed     503  us       the database cannot be read now
      fault            500  us       a defect of the dashboard

People get a calm page, programs RFC 9457 problem+json.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from compare.phrases import say


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem as a value. ``title`` says what is the matter, ``detail`` what to do about it."""

    status: int
    code: str
    title: str
    detail: str


class TroubleRaised(Exception):
    """Leave a handler with a trouble; caught at the request boundary."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.code)
        self.trouble = trouble


TOKEN_REQUIRED = Trouble(
    401,
    "token_required",
    say("This dashboard asks for its token."),
    say("Whoever started it set the token in CROSSFADE_DASHBOARD_TOKEN. Programs send it as Authorization: Bearer."),
)
ROLE_TOO_LOW = Trouble(
    403,
    "role_too_low",
    say("Your role does not allow this."),
    say(
        "Viewers see verdicts, reviewers also the bodies, operators also move traffic. Ask for the token of that role."
    ),
)
FOREIGN_FORM = Trouble(
    403,
    "foreign_form",
    say("This change was asked for by a page of another site."),
    say("Nothing was changed. Open the dashboard itself and try again there."),
)
UNKNOWN_HOST = Trouble(
    421,
    "unknown_host",
    say("This dashboard does not answer to that name."),
    say("It listens on this machine only: open it as http://127.0.0.1 with its port."),
)
NOT_FOUND = Trouble(
    404, "not_found", say("There is nothing at this address."), say("Start again from the list of routes.")
)
PURGED = Trouble(
    410,
    "body_purged",
    say("This body is not kept any more."),
    say("Bodies are deleted after store.keep_bodies_days; hash, size and every number of the pair stay."),
)
NOT_A_PICTURE = Trouble(
    415, "not_a_picture", say("This body cannot be drawn."), say("Download it from its pair page to look at the bytes.")
)
CORRUPT = Trouble(
    500,
    "body_corrupt",
    say("The stored bytes are not the ones that were stored."),
    say("The file in the folder of bodies was changed or damaged; check the disk."),
)
STORE_FAILED = Trouble(
    503,
    "store_failed",
    say("The store cannot be read at the moment."),
    say("Nothing is lost; reload in a few seconds."),
)
TOO_MANY_EYES = Trouble(
    503,
    "too_many_pages",
    say("Too many pages are open to be kept live."),
    say("Close some; every page shows its numbers without."),
)
FAULT = Trouble(
    500, "fault", say("The dashboard has a defect here."), say("The traffic is not affected. The log names the fault.")
)


def no_such(what: str, name: str) -> TroubleRaised:
    """Return a 404 that names what was looked for."""
    return TroubleRaised(
        Trouble(404, "not_found", say("There is no {what} {name}.", what=say(what), name=name[:80]), NOT_FOUND.detail)
    )


def refused(detail: str) -> TroubleRaised:
    """Return a 409 for a change that may not be made now; ``detail`` says why and what to do."""
    return TroubleRaised(Trouble(409, "refused", say("This may not be changed now."), detail))


def as_problem(trouble: Trouble) -> JSONResponse:
    """Return the trouble as RFC 9457 problem+json."""
    content = {"type": "about:blank", "title": trouble.title, "status": trouble.status, "code": trouble.code}
    headers = {"www-authenticate": 'Bearer realm="crossfade"'} if trouble.status == 401 else None
    return JSONResponse(
        {**content, "detail": trouble.detail}, trouble.status, headers, media_type="application/problem+json"
    )


def from_http(error: HTTPException) -> Trouble:
    """Return starlette's own error (no such path, method not allowed) as a trouble."""
    if error.status_code == 404:
        return NOT_FOUND
    return Trouble(error.status_code, "bad_request", say("{error}.", error=error.detail), NOT_FOUND.detail)


def wants_page(request: Request) -> bool:
    """Whether a person asks, with a browser."""
    return "text/html" in request.headers.get("accept", "")


async def refuse_host(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as an ASGI app to a host that is not known."""
    await as_problem(UNKNOWN_HOST)(scope, receive, send)
