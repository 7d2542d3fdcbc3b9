"""JSON answers of which one part is the output: a ranking of labels, embeddings, tags, boxes.

The part lies at ``Policy.value_path`` (``predictions``, ``data[*].embedding``), else at the kind's usual place. What
else the documents hold (ids, timings, usage) is not compared. Where neither side has such a part the documents are
compared as JSON; where one side lacks it, its schema is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compare.kernels.boxes import match_boxes, read_boxes
from compare.kernels.json_kernel import judge_json, parse_both
from compare.kernels.json_rules import cosine, jaccard, read_ranking, read_vector
from compare.kernels.ranking import Ranked, compare_rankings
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, plain, say
from compare.policy import JsonRule, Kind, Policy

_LABEL_LENGTH = 60
_MOST_VALUES = 4096
_FORMS = (say("a list"), say("a string"))
USUAL_PATHS: Mapping[Kind, str] = {
    Kind.CLASSIFICATION: "predictions",
    Kind.EMBEDDING: "data[*].embedding",
    Kind.TAGS: "tags",
    Kind.BOXES: "boxes",
}


def values_at(value: Any, path: str) -> list[Any]:
    """Return what lies at a typed path, in order: ``a.b`` goes into objects, ``[*]`` into every item of a list."""
    found = [value]
    for step in path.replace("[*]", ".[*]").strip(".").split("."):
        if step == "[*]":
            found = [item for side in found if isinstance(side, list) for item in side]
        elif step:
            found = [side[step] for side in found if isinstance(side, dict) and step in side]
    return found


def judge_structured(kind: Kind, baseline: bytes, candidate: bytes, policy: Policy) -> Judgement:
    """Compare two answers whose output is one part of their JSON."""
    documents = parse_both(baseline, candidate, policy)
    if isinstance(documents, Judgement):
        return documents
    path, read = policy.value_path or USUAL_PATHS[kind], _READERS[kind]
    found = [values_at(document.value, path) for document in documents]
    old, new = (_read_all(values, read, policy) for values in found)
    if old is None or new is None:
        return _without(old is None, new is None, path, baseline, candidate, policy)
    if len(old) > _MOST_VALUES or len(new) > _MOST_VALUES:
        return Judgement(None, note=say("more than {n:,} values at {path!r} to compare", n=_MOST_VALUES, path=path))
    if len(old) != len(new):
        counts = {"n": len(new), "old": len(old)}
        words = Diagnosis("schema", say("{n} values at {path!r} where the baseline has {old}", path=path, **counts))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    for one, other in zip(*found, strict=True):
        if isinstance(one, str) is not isinstance(other, str):  # a client reads the one form of a vector or the other
            kinds = {"old": _FORMS[isinstance(one, str)], "new": _FORMS[isinstance(other, str)]}
            words = Diagnosis("schema", say("the candidate answers {new} where the baseline answers {old}", **kinds))
            return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    return worst_of([_JUDGES[kind](a, b, policy) for a, b in zip(old, new, strict=True)])


def _read_all(values: Sequence[Any], read: Callable[[Any, Policy], Any], policy: Policy) -> list[Any] | None:
    found = [read(value, policy) for value in values]
    return None if not found or any(value is None for value in found) else found


def _without(
    old_lacks: bool, new_lacks: bool, path: str, baseline: bytes, candidate: bytes, policy: Policy
) -> Judgement:
    if old_lacks and new_lacks:
        whole = judge_json(baseline, candidate, policy)
        note = say("nothing of the route's kind at {path!r}: compared as JSON", path=path)
        return Judgement(whole.output_class, whole.numbers, whole.diagnoses, whole.critical, note)
    side = "candidate" if new_lacks else "baseline"
    source = mark("the {side}'s answer has nothing of the route's kind at {path!r}")
    words = Diagnosis("schema", say(source, side=plain(side), path=path))
    return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA if new_lacks else None)


def worst_of(found: Sequence[Judgement]) -> Judgement:
    """Return the gravest of the values' judgements; how many there are goes into its numbers."""
    order = [OutputClass.IDENTICAL, OutputClass.EQUIVALENT, OutputClass.DIFFERENT, OutputClass.BROKEN]
    worst = max(found, key=lambda one: order.index(one.output_class or OutputClass.IDENTICAL))
    if len(found) == 1:
        return worst
    apart = sum(one.output_class is not None and one.output_class.mismatch for one in found)
    numbers: dict[str, Number] = {**worst.numbers, "values": len(found), "values_apart": apart}
    return Judgement(worst.output_class, numbers, worst.diagnoses, worst.critical, worst.note)


def _class_of(equal: bool, within: bool) -> OutputClass:
    return OutputClass.IDENTICAL if equal else OutputClass.EQUIVALENT if within else OutputClass.DIFFERENT


def _read_labels(value: Any, policy: Policy) -> list[Ranked] | None:
    rule = JsonRule("")
    return read_ranking(value, rule.label, rule.score, policy.top_k)


def _judge_labels(old: list[Ranked], new: list[Ranked], policy: Policy) -> Judgement:
    """Labels in order up to ties, scores within the policy's tolerance."""
    result = compare_rankings(old, new, policy.score_tolerance)
    gap = round(result.largest_gap, 6) if math.isfinite(result.largest_gap) else None
    numbers: dict[str, Number] = {"rbo": round(result.rbo, 4), "largest_score_gap": gap}
    note = say("the order differs only among tied scores") if result.tied else ""
    equal = [place.label for place in old] == [place.label for place in new] and result.largest_gap == 0
    name = _class_of(equal, result.same)
    if not name.mismatch:
        return Judgement(name, numbers, note=note)
    if not result.top_same and old and new:
        names = {"old": _label(old[0]), "new": _label(new[0])}
        words = Diagnosis("top_label", say("the top label differs: {old} against {new}", **names))
    elif result.largest_gap > policy.score_tolerance:
        told = say("scores differ by up to {gap:.3g}", gap=gap) if gap is not None else say("a score is no number")
        words = Diagnosis("scores", told)
    else:
        words = Diagnosis("labels", say("labels below the first differ"))
    return Judgement(name, numbers, (words,), note=note)


def _label(place: Ranked) -> str:
    text = place.label if len(place.label) <= _LABEL_LENGTH else f"{place.label[:_LABEL_LENGTH]}..."
    return repr(text)


def _judge_vectors(old: list[float], new: list[float], policy: Policy) -> Judgement:
    if len(old) != len(new):
        source = mark("the vector has {new} dimensions where the baseline's has {old}")
        words = Diagnosis("dimensions", say(source, new=len(new), old=len(old)))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    angle = cosine(old, new)
    if angle is None:
        endless = Diagnosis("not_finite", say("a vector has no finite length"))
        return Judgement(OutputClass.BROKEN, diagnoses=(endless,))
    numbers: dict[str, Number] = {"cosine": round(angle, 6), "dimensions": len(old)}
    name = _class_of(old == new, angle >= policy.min_cosine)
    source = mark("the vectors' cosine is {cosine:.5f}, at least {least:g} wanted")
    words = Diagnosis("direction", say(source, cosine=angle, least=policy.min_cosine))
    return Judgement(name, numbers, (words,) if name.mismatch else ())


def _judge_tags(old: list[str], new: list[str], policy: Policy) -> Judgement:
    share = jaccard(old, new) or 0.0
    numbers: dict[str, Number] = {"jaccard": round(share, 4), "tags_baseline": len(old), "tags_candidate": len(new)}
    name = _class_of(old == new, share >= policy.min_jaccard)
    lost, added = len(set(old) - set(new)), len(set(new) - set(old))
    counts = {"lost": lost, "of": len(set(old)), "added": added}
    words = Diagnosis("tags", say("{lost} of {of} tags are missing and {added} are new", **counts))
    return Judgement(name, numbers, (words,) if name.mismatch else ())


def _judge_boxes(old: Any, new: Any, policy: Policy) -> Judgement:
    a, b = (read_boxes(side, policy.box_format) for side in (old, new))
    assert a is not None
    assert b is not None
    found = match_boxes(a, b, policy.min_iou)
    numbers: dict[str, Number] = {
        "f1": round(found.f1, 4),
        "missed": found.missed,
        "extra": found.extra,
        "mean_iou": round(found.mean_iou, 4),
        "largest_score_gap": round(found.largest_score_gap, 6),
    }
    name = _class_of(old == new, found.f1 >= policy.min_f1)
    counts = {"lost": found.missed, "of": len(a.labels), "added": found.extra}
    words = Diagnosis("boxes", say("{lost} of {of} boxes are missing and {added} are new", **counts))
    return Judgement(name, numbers, (words,) if name.mismatch else ())


_READERS: Mapping[Kind, Callable[[Any, Policy], Any]] = {
    Kind.CLASSIFICATION: _read_labels,
    Kind.EMBEDDING: lambda value, _policy: read_vector(value) or None,
    Kind.TAGS: lambda value, _policy: value if jaccard(value, value) is not None else None,
    Kind.BOXES: lambda value, policy: value if read_boxes(value, policy.box_format) is not None else None,
}
_JUDGES: Mapping[Kind, Callable[[Any, Any, Policy], Judgement]] = {
    Kind.CLASSIFICATION: _judge_labels,
    Kind.EMBEDDING: _judge_vectors,
    Kind.TAGS: _judge_tags,
    Kind.BOXES: _judge_boxes,
}
