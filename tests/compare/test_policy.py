"""Policies: what none may be, and which of its fields change which of its two keys."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from compare.policy import ImageBands, JsonRule, Kind, Margins, Policy, TunedFor, measurement_key, policy_hash
from shadow.keeping import Bodies
from tests.compare.examples import policy

POLICY = policy()


def test_a_policy_refuses_what_no_verdict_could_be_drawn_from() -> None:
    with pytest.raises(ValueError, match="both 'cloud'"):
        policy(candidate="cloud")
    with pytest.raises(ValueError, match="alpha"):
        policy(alpha=0.7)
    with pytest.raises(ValueError, match="slo_percentile"):
        policy(slo_percentile=50)


def test_the_policy_hash_changes_with_what_a_verdict_promises_and_the_key_with_what_is_measured() -> None:
    judged = [policy(alpha=0.1), policy(margins=Margins(errors=0.02)), policy(min_pairs=4), policy(latency_slo_s=3.0)]
    measured_otherwise = [policy(score_tolerance=0.5), policy(image=ImageBands(face_iou=0.4)), policy(Kind.BYTES)]
    beside = [policy(mirror_percent=5.0), policy(routes=9), policy(deadline_s=1.0)]
    assert len({policy_hash(p) for p in [POLICY, *judged, *measured_otherwise]}) == 8
    assert {measurement_key(p) for p in judged} == {measurement_key(POLICY)}
    assert len({measurement_key(p) for p in [POLICY, *measured_otherwise]}) == 4
    assert {policy_hash(p) for p in beside} == {policy_hash(POLICY)}
    assert {measurement_key(p) for p in beside} == {measurement_key(POLICY)}


def test_every_field_of_a_policy_is_in_one_of_the_keys_or_left_out_on_purpose() -> None:
    changed: dict[str, object] = {
        "route": "other", "baseline": "b", "candidate": "c", "kind": Kind.ERASE, "alpha": 0.01, "latency_slo_s": 9.0,
        "slo_percentile": 99, "deadline_s": 9.0, "margins": Margins(outputs=0.3), "tuned_for": TunedFor(p50=1.0),
        "min_pairs": 9, "min_span_s": 9.0, "min_coverage": 0.5, "mirror_percent": 9.0, "routes": 9,
        "random_outputs": True, "image": ImageBands(face_iou=0.1), "json_rules": (JsonRule("a"),), "top_k": 9,
        "score_tolerance": 0.9, "max_json_bytes": 9, "max_json_depth": 9, "max_body_bytes": 9, "value_path": "x",
        "min_cosine": 0.9, "min_jaccard": 0.9, "min_iou": 0.9, "min_f1": 0.9, "box_format": "xywh",
        "min_similarity": 0.9, "bodies": Bodies.HASHES, "kept_matches_percent": 9.0,
    }  # fmt: skip
    assert set(changed) == {each.name for each in fields(Policy)}
    others = {name: replace(POLICY, **{name: value}) for name, value in changed.items()}  # type: ignore[arg-type]
    unheard = {name for name, other in others.items() if policy_hash(other) == policy_hash(POLICY)}
    assert unheard == {"mirror_percent", "routes", "deadline_s", "bodies", "kept_matches_percent"}
