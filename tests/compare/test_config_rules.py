"""What the config says of the comparison reaches the policy, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.policy import ImageBands, JsonRule, Kind, RuleName
from crossfade.composition import policies
from crossfade.config.loading import ConfigError, load_config

HEAD = """
backends:
  cloud: {servers: ["http://127.0.0.1:9001"]}
  onprem: {servers: ["http://127.0.0.1:9002"]}
routes:
  - name: detect
    match: {path: /v1/detect}
    baseline: cloud
    candidate: onprem
    active: cloud
    compare:
"""


def configured(folder: Path, text: str) -> Path:
    path = folder / "crossfade.yaml"
    path.write_text(HEAD + "\n".join(f"      {line}" for line in text.strip().splitlines()) + "\n")
    return path


def test_rules_kind_and_place_reach_the_policy(tmp_path: Path) -> None:
    text = """
kind: boxes
value_path: result.boxes
min_similarity: 0.6
ignore: [id]
rules:
  - {path: "items[*].score", rule: tolerance, abs_tol: 0.01, rel_tol: 0.001}
  - {path: tags, rule: tags, min_jaccard: 0.5}
  - {path: note, rule: ordered}
"""
    (found,) = policies(load_config(configured(tmp_path, text)))
    assert (found.kind, found.value_path, found.min_similarity) == (Kind.BOXES, "result.boxes", 0.6)
    assert found.json_rules == (
        JsonRule("id", RuleName.IGNORE),
        JsonRule("items[*].score", RuleName.TOLERANCE, abs_tol=0.01, rel_tol=0.001),
        JsonRule("tags", RuleName.TAGS, min_jaccard=0.5),
        JsonRule("note", RuleName.ORDERED),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [{path: a, rule: tolerence}]", "tolerance"),
        ("rules: [{path: a, rule: exact}, {path: a, rule: set}]", "the JSON path a has two rules"),
        ("ignore: [a]\nrules: [{path: a, rule: set}]", "the JSON path a has two rules"),
        ("rules: [{path: 'a b', rule: set}]", "path"),
        ("rules: [{path: a, rule: tolerance, abs_tol: -1}]", "abs_tol"),
        ("kind: boxen", "boxes"),
    ],
)
def test_a_mistake_in_a_rule_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(configured(tmp_path, text))


def test_every_kind_and_rule_can_be_configured(tmp_path: Path) -> None:
    for kind in Kind:
        if kind is not Kind.AUTO:
            assert policies(load_config(configured(tmp_path, f"kind: {kind}")))[0].kind is kind
    for rule in RuleName:
        made = policies(load_config(configured(tmp_path, f"rules: [{{path: a, rule: {rule}}}]")))[0]
        assert made.json_rules[0].rule is rule


def test_the_picture_bands_of_the_config_are_those_of_the_kernel(tmp_path: Path) -> None:
    (usual,) = policies(load_config(configured(tmp_path, "kind: image")))
    assert usual.image == ImageBands()
    (changed,) = policies(load_config(configured(tmp_path, "image: {lossy_tile_ssim: 0.75, restore_ssimulacra2: 80}")))
    assert changed.image == ImageBands(lossy_tile_ssim=0.75, restore_ssimulacra2=80)
    with pytest.raises(ConfigError, match=r"lossy_tile_sim: unknown key; did you mean lossy_tile_ssim"):
        load_config(configured(tmp_path, "image: {lossy_tile_sim: 0.75}"))
