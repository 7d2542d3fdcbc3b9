"""The page about the server lists what there is, no less and no more."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from onprem_backend.options import OPTIONS
from onprem_backend.problems import CODES
from onprem_backend.settings import VARIABLES

PAGE = (Path(__file__).parents[2] / "docs" / "onprem.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def words(text: str, pattern: str) -> set[str]:
    return set(re.findall(rf"`({pattern})", text))


def test_every_setting_is_on_the_page() -> None:
    assert words(section("Settings"), r"(?:ONPREM|CROSSFADE)_[A-Z_]+") == set(VARIABLES)


def test_every_error_code_is_on_the_page_beside_its_status() -> None:
    listed = {}
    for line in section("Errors").splitlines():
        statuses, codes = re.findall(r"\b[45]\d\d\b", line), re.findall(r"`([a-z_0-9]+)`", line)
        pairs = (
            zip(statuses, codes, strict=True) if len(statuses) > 1 else ((statuses[0], c) for c in codes if statuses)
        )
        listed.update({code: int(status) for status, code in pairs})
    assert listed == dict(CODES)


def test_every_metric_is_on_the_page(client: httpx.Client) -> None:
    listed = words(section("Health, models, metrics, traces"), r"onprem_[a-z_]+") - {"onprem_device_memory_bytes"}
    shown = set(re.findall(r"^# HELP (onprem_[a-z_]+)", client.get("/metrics").text, re.MULTILINE))
    created = {name for name in shown if name.endswith("_created")}
    assert listed == shown - created


def test_every_option_is_on_the_page() -> None:
    for line in section("Functions and their options").splitlines():
        feature = re.match(r"\| `/v1/([a-z-]+)`", line)
        if feature:
            named = set(re.findall(r"(?:\||·) `([a-z]+)`", line)) - {"file"}
            assert set(OPTIONS[feature[1]]) == named - {"fields"}
    assert {f"/v1/{feature}" for feature in OPTIONS} == words(section("Functions and their options"), "/v1/[a-z-]+")
