"""Every text of every page is in the catalogue, in both languages, and the visitor's choice sticks."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from jinja2 import Environment, nodes
from markupsafe import Markup, escape
from starlette.requests import Request

from compare.dashboard import phrases
from compare.dashboard.errors import FAULT
from compare.dashboard.phrases import KOREAN, catalogue, translate
from compare.dashboard.rendering import Renderer
from compare.measurement import NotComparable
from compare.phrases import joined, plural, say
from compare.ramp import NOBODY, Phase
from compare.tally import SIZES
from compare.verdict import Decision
from crossfade.demo.run import NOTICE
from shadow.exchange import FailureKind, Role, SkipReason
from tests.compare.dashboard.conftest import Site

ROOM = Path(phrases.__file__).parent
JUDGING = [path for path in ROOM.parent.rglob("*.py") if ROOM not in path.parents]
JUDGING += (ROOM.parent.parent / "crossfade").rglob("*.py")
"""Whoever builds sentences that are stored."""
PAGE = {"accept": "text/html"}
NO_WORDS = {"Crossfade", "UTC", "·"}
ENUMS = (SkipReason, FailureKind, Role, Phase, Decision, NotComparable)
CODES = {
    *(each.value.replace("_", " ") for enum in ENUMS for each in enum),
    *(name for _, name in SIZES),
    *("over 10 MB", "not named yet", "not comparable", "rate limited", "key unknown"),
    *NOBODY,
}
"""Codes of the record that pages show as words (``words.plain``)."""


def python_calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node, node.func.id


def said_in_python(path: Path) -> Iterator[str]:
    for call, name in python_calls(path):
        if name in ("say", "mark") and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)
        if name == "plural" and isinstance(call.args[1], ast.Constant):
            noun = str(call.args[1].value)
            yield from (f"{{n:,}} {noun}", f"{{n:,}} {noun}s")


def said_in_templates(path: Path) -> Iterator[str]:
    for call in Environment(autoescape=True).parse(path.read_text()).find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "_" and isinstance(call.args[0], nodes.Const):
            yield str(call.args[0].value)


def said() -> set[str]:
    python = (text for path in (*ROOM.rglob("*.py"), *JUDGING) for text in said_in_python(path))
    templates = (text for path in ROOM.rglob("*.html") for text in said_in_templates(path))
    return {text for text in (*python, *templates) if re.search("[A-Za-z]", re.sub(r"\{[^}]*\}", "", text))}


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_the_catalogue_has_every_sentence_and_no_other() -> None:
    assert sorted((said() | CODES) - catalogue().keys()) == []
    assert sorted(catalogue().keys() - said() - CODES) == []


def test_a_translation_puts_the_same_values_and_is_korean() -> None:
    wrong = [source for source, korean in catalogue().items() if not places(korean) <= places(source) | {"n"}]
    assert wrong == []
    judging = {source for path in JUDGING for source in said_in_python(path)} & catalogue().keys()
    assert [source for source in judging if places(catalogue()[source]) != places(source)] == []
    told = {source: re.sub(r"\{[^}]*\}", "", korean) for source, korean in catalogue().items()}
    assert [
        korean for korean in told.values() if re.search("[A-Za-z]", korean) and not re.search("[가-힣]", korean)
    ] == []
    assert [source for source, korean in catalogue().items() if source == korean] == []


def test_no_template_has_a_sentence_of_its_own() -> None:
    found = []
    for path in ROOM.rglob("*.html"):
        source = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)
        texts = re.sub(r"<title>.*?</title>|<kbd>.*?</kbd>", "", source, flags=re.DOTALL)
        attributes = re.findall(r"(?:aria-label|alt|title|placeholder)=\"([^\"]*[A-Za-z]{2}[^\"]*)\"", texts)
        words = [text.strip() for text in re.sub(r"<[^>]*>", "\n", texts).split("\n")]
        found += [(path.name, text) for text in (*words, *attributes) if re.search("[A-Za-z]{2}", text)]
    assert [each for each in found if each[1] not in NO_WORDS] == []


def test_no_view_has_a_sentence_that_is_not_said() -> None:
    found = []
    for path in ROOM.rglob("views/*.py"):
        tree = ast.parse(path.read_text())
        quiet = {id(part) for node in ast.walk(tree) if is_quiet(node) for part in ast.walk(node)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in quiet:
                continue
            if re.search("[A-Za-z]{2,} [A-Za-z]{2,}", node.value) and not node.value.startswith("crossfade "):
                found.append((path.name, node.value))
    assert found == []


def is_quiet(node: ast.AST) -> bool:
    """Whether what is below is a docstring, or is said."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("say", "mark", "plural")
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_a_phrase_is_english_and_translates_with_all_that_is_in_it() -> None:
    phrase = say("Wait for about {pairs}", pairs=plural(1200, "more pair"))
    assert phrase == "Wait for about 1,200 more pairs"
    assert "1,200" in translate(phrase, KOREAN)
    assert re.fullmatch(r"[^A-Za-z]+", translate(joined(", ", (phrase, phrase)), KOREAN))
    assert translate("a route's own name", KOREAN) == "a route's own name"


@pytest.mark.parametrize("language", ["en", "ko"])
def test_what_came_from_traffic_stays_escaped_in_a_phrase(language: str) -> None:
    shown = translate(say("Wait for about {pairs}", pairs="<script>", more=Markup("<b>")), language)
    assert isinstance(shown, Markup)
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize("notice", [NOTICE, "Ours, not {in} the catalogue }"], ids=["known", "other"])
def test_a_notice_that_the_catalogue_knows_is_told_in_the_visitors_language(notice: str) -> None:
    request = Request({"type": "http", "path": "/", "query_string": b"", "headers": [(b"accept-language", b"ko")]})
    page = Renderer(notice, lambda: datetime(2026, 5, 4, tzinfo=UTC)).page(
        request, "trouble.html", trouble=FAULT, title=FAULT.title
    )
    assert escape(catalogue().get(notice, notice)) in bytes(page.body).decode()


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("ko", "ko"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("en-US,en;q=0.9,ko;q=0.8", "en"),
        ("de,fr;q=0.5", "en"),
        ("de,ko;q=0.1", "ko"),
        ("ko;q=0", "en"),
        ("ko;q=many", "en"),
        ("", "en"),
        (",;=q", "en"),
    ],
)
def test_the_browser_is_asked_for_the_language(site: Site, accepted: str, language: str) -> None:
    text = httpx.get(site.url, headers={**PAGE, "accept-language": accepted}, trust_env=False).text
    assert f'<html lang="{language}">' in text


def test_the_switch_sticks_and_leads_back_to_the_page(site: Site) -> None:
    with httpx.Client(base_url=site.url, headers={**PAGE, "accept-language": "en"}, trust_env=False) as client:
        page = client.get("/routes/restore?show=mismatch").text
        (link,) = re.findall(r'href="(/language/ko[^"]*)"', page)
        answer = client.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/routes/restore?show=mismatch")
        assert '<html lang="ko">' in client.get("/").text
        assert '<html lang="ko">' in client.get("/nowhere").text
        client.get("/language/en")
        assert '<html lang="en">' in client.get("/").text
        client.cookies.clear()
        assert client.get("/language/xx?next=//evil.example/").headers["location"] == "/"
        assert not client.cookies
