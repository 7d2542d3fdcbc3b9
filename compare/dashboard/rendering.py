"""Lay pages out. Autoescape is on for every template, and no text of the traffic can break the encoding of a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from compare.dashboard.errors import TOKEN_REQUIRED
from compare.dashboard.phrases import LANGUAGES, language_of, translate
from compare.phrases import Phrase, say


class Renderer:
    """Owns the templates of each language; ``notice`` stands on every page, ``plotly`` is the address of its script."""

    def __init__(self, notice: str, now: Callable[[], datetime], plotly: str = "") -> None:
        # A notice that the catalogue knows, such as the demo's, is told in the visitor's language.
        self._notice = say(notice.replace("{", "{{").replace("}", "}}"))
        self._now, self._plotly = now, plotly
        self._templates = {language: self._environment(language) for language in LANGUAGES}

    def _environment(self, language: str) -> Environment:
        """Return the templates that say every phrase in a language."""
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            finalize=lambda value: translate(value, language) if isinstance(value, Phrase) else value,
        )
        environment.globals.update(
            _=say,
            code=_code,
            figure=lambda value: json.dumps(_spoken(value, language), separators=(",", ":")),
            language=language,
            languages=LANGUAGES,
        )
        environment.tests["phrase"] = lambda value: isinstance(value, Phrase)
        return environment

    def page(self, request: Request, template: str, status: int = 200, **context: object) -> HTMLResponse:
        """Return the page in the visitor's language. A lone surrogate (a JSON escape can smuggle one in) is shown
        escaped."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        context = {"ledger": None, "notice": self._notice, "now": self._now().astimezone(UTC), "here": here, **context}
        context["plotly"] = self._plotly
        html = self._templates[language_of(request)].get_template(template).render(context)
        headers = {"vary": "accept-language, cookie"}
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), status, headers)

    def login(self, request: Request, *, wrong: bool = False, back_to: str = "") -> HTMLResponse:
        """Return the form that asks for the token and then leads to where the visitor wanted to go."""
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        context = {"trouble": TOKEN_REQUIRED, "wrong": wrong, "next": back_to or path}
        return self.page(request, "login.html", TOKEN_REQUIRED.status, title=say("Log in"), **context)


def _spoken(value: object, language: str) -> Any:
    """Return a figure with its phrases in a language."""
    if isinstance(value, dict):
        return {name: _spoken(each, language) for name, each in value.items()}
    if isinstance(value, list):
        return [_spoken(each, language) for each in value]
    return translate(value, language) if isinstance(value, Phrase) else value


def _code(text: str) -> Markup:
    """Return text that a person types, as a value of a phrase."""
    return Markup("<code>{}</code>").format(text)
