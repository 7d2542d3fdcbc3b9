"""The reference page: made from the code, so what it lists is what there is."""

from __future__ import annotations

from pathlib import Path

from crossfade.reference import config_keys, metrics, render

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == render(), "run: python -m crossfade.reference > docs/reference.md"


def test_every_setting_says_what_it_is() -> None:
    assert [key for key, _, text in config_keys() if not text] == []


def test_every_metric_says_what_it_counts() -> None:
    assert [name for name, _, text in metrics() if not text] == []
