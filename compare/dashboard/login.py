"""The login form: a token goes in, a session cookie comes out."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from compare.dashboard.errors import TOKEN_REQUIRED, Trouble, as_problem, wants_page
from compare.dashboard.phrases import COOKIE as LANGUAGE_COOKIE
from compare.dashboard.phrases import LANGUAGES
from compare.dashboard.rendering import Renderer
from compare.dashboard.security import COOKIE, SESSION_S, Gate, local_path
from compare.phrases import say

_MAX_FORM_BYTES = 8192
NO_FORM = Trouble(
    400, "bad_request", say("This is no form of ours."), say("Send its fields urlencoded, such as token=….")
)


class Login:
    """Compares what was typed with the token, in constant time. The token never leaves this process again."""

    def __init__(self, gate: Gate, renderer: Renderer) -> None:
        self._gate, self._renderer = gate, renderer

    async def enter(self, request: Request) -> Response:
        """Set the cookie and lead on, or show the form again."""
        form = await read_form(request)
        if form is None:
            return as_problem(NO_FORM)
        back_to = local_path(form.get("next", "/"))
        role = self._gate.accepts(form.get("token", ""))
        if self._gate.demanded and role is None:
            if not wants_page(request):
                return as_problem(TOKEN_REQUIRED)
            return self._renderer.login(request, wrong=True, back_to=back_to)
        answer = RedirectResponse(back_to, 303)
        if role is not None:
            secure, session = request.url.scheme == "https", self._gate.session(role)
            answer.set_cookie(COOKIE, session, SESSION_S, httponly=True, samesite="strict", secure=secure)
        return answer


async def choose_language(request: Request) -> Response:
    """Remember the language that a visitor chose, and lead back to the page."""
    answer = RedirectResponse(local_path(request.query_params.get("next", "/")), 303)
    language = request.path_params["code"]
    if language in LANGUAGES:
        answer.set_cookie(LANGUAGE_COOKIE, language, 365 * 86_400, httponly=True, samesite="lax")
    return answer


async def read_form(request: Request) -> dict[str, str] | None:
    """Return the fields of a urlencoded form, ``None`` for what no form of ours can be."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            return None
    try:
        fields = parse_qs(body.decode("latin-1"), keep_blank_values=True, max_num_fields=8)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}
