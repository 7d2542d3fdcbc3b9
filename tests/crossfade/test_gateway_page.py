"""The page on the gateway in production: its example is a config that can be used, its names exist."""

from __future__ import annotations

import re
from pathlib import Path

from crossfade.composition import gateway_settings
from crossfade.config.loading import load_config
from crossfade.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


def test_the_example_is_valid_and_says_what_the_page_says(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    config = tmp_path / "crossfade.yaml"
    config.write_text(example[1])
    settings = gateway_settings(load_config(config, {}))
    assert settings.routes[0].fallback
    assert settings.routes[0].websocket
    assert settings.forwarded == "both"
    assert settings.tls is not None
    assert settings.tls.certificate == str(tmp_path / "tls" / "chain.pem")
    check = settings.backends["onprem"].rules.check
    assert check is not None
    assert check.path == "/v2/health/ready"


def test_every_code_and_metric_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(crossfade_[a-z_]+[a-z]|[a-z]+_[a-z_]+)`", PAGE.read_text()))
    assert len(named) > 10
    reference = render()
    assert [name for name in sorted(named) if name not in reference] == []
