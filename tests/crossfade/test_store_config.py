"""The config's say on the store: where it is, its key, what a route lets it keep; and no password on any page."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.policy import Kind
from crossfade.composition import gateway_settings, policies
from crossfade.config.loading import ConfigError, load_config, parse_config
from crossfade.config.model import StoreConfig
from shadow.keeping import Bodies, KeepRule

GOOD = """\
backends: {cloud: {servers: ["http://127.0.0.1:1"]}, onprem: {servers: ["http://127.0.0.1:2"]}}
routes:
  - name: classify
    match: {path: /v1/classify}
    baseline: cloud
    candidate: onprem
    active: cloud
    keep: {bodies: mismatches, matches_percent: 5, redact_json: [user.email]}
    compare: {kind: classification}
store: {url: "postgresql+psycopg://me:${PASSWORD}@db/x", bodies: "s3://bucket/x", key: "file:keys/store.key"}
"""


def test_a_store_elsewhere_is_read_and_its_password_shows_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "crossfade.yaml"
    path.write_text(GOOD, encoding="utf-8")
    config = load_config(path, {"PASSWORD": "hush-hush"})
    settings = gateway_settings(config)
    assert settings.store_url == "postgresql+psycopg://me:hush-hush@db/x"
    assert (settings.bodies_dir, settings.store_key) == ("s3://bucket/x", f"file:{tmp_path}/keys/store.key")
    for shown in (repr(config), str(config), config.model_dump_json(), repr(settings)):
        assert "hush-hush" not in shown
    assert "me:***@db" in config.model_dump_json()


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://me:hu@sh@db/x", "postgresql+psycopg://db/x?user=me&password=hu@sh&sslPassword=hu@sh&a=b"],
)
def test_a_password_shows_nowhere_however_it_is_written(url: str) -> None:
    shown = StoreConfig(url=url, bodies="b", key="env:KEY").model_dump_json()
    assert "hu" not in shown
    assert "sh@" not in shown
    assert "a=b" in shown or "?" not in url


def test_what_a_route_keeps_reaches_the_gateway_and_the_comparison() -> None:
    config = parse_config(GOOD, environ={"PASSWORD": "x"})
    assert gateway_settings(config).routes[0].keep == KeepRule(Bodies.MISMATCHES, 5.0, ("user.email",))
    (policy,) = policies(config)
    assert (policy.bodies, policy.kept_matches_percent, policy.kind) == (Bodies.MISMATCHES, 5.0, Kind.CLASSIFICATION)
    hashes = parse_config(GOOD.replace("bodies: mismatches", "bodies: hashes"), environ={"PASSWORD": "x"})
    assert policies(hashes)[0].kind is Kind.BYTES


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (', key: "file:keys/store.key"', "", "key must be set for PostgreSQL"),
        ("file:keys/store.key", "0" * 64, "must be file:PATH or env:NAME, and never the key itself"),
        ("postgresql+psycopg", "mysql", "must be sqlite:///relative/path.db or postgresql"),
        ("user.email", "user..email", "is not a JSON path"),
        ("mismatches", "mismatch", "did you mean mismatches"),
    ],
)
def test_what_cannot_be_is_told(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match="config:") as told:
        parse_config(GOOD.replace(old, new), environ={"PASSWORD": "hush-hush"})
    assert said in str(told.value)
    assert "hush-hush" not in str(told.value)
    assert "0" * 64 not in str(told.value)
