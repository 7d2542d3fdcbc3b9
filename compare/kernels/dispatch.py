"""Choose the kernel: by the policy's kind, else by the answers' content.

Statuses come before bodies: only a 2xx has an output. Where one side has one and the other refused (404, 415, a
redirect) that is a mismatch of its own; where neither has, there is nothing to judge, whatever the error pages say.
"""

from __future__ import annotations

from dataclasses import replace

from compare.kernels.cutout import judge_cutout
from compare.kernels.erase import judge_erase
from compare.kernels.events import judge_chat, judge_events
from compare.kernels.face_blur import judge_face_blur
from compare.kernels.form import request_mask, request_picture
from compare.kernels.image import judge_image
from compare.kernels.json_kernel import judge_json
from compare.kernels.material import Answer, Question
from compare.kernels.multipart import answer_parts, boundary_of
from compare.kernels.pixels import read_orientation
from compare.kernels.sniffing import is_for_machines, is_json_lines, kinds_of
from compare.kernels.structured import judge_structured, worst_of
from compare.kernels.text import judge_text
from compare.measurement import Critical, Diagnosis, Judgement, OutputClass
from compare.phrases import joined, mark, plain, say
from compare.policy import Kind, Policy

_STRUCTURED = frozenset({Kind.CLASSIFICATION, Kind.EMBEDDING, Kind.TAGS, Kind.BOXES})


def request_orientation(question: Question) -> int | None:
    """Return the EXIF orientation of the request's picture, ``None`` when there is no picture to read."""
    data = request_picture(question)
    return read_orientation(data) if data else None


def judge_statuses(baseline: int, candidate: int) -> Judgement | None:
    """Return the judgement when bodies need not be looked at: statuses differ, or neither is a 2xx."""
    if not any(200 <= status < 300 for status in (baseline, candidate)):
        return Judgement(
            None,
            note=say("no output to compare: {baseline} against {candidate}", baseline=baseline, candidate=candidate),
        )
    if baseline != candidate:
        source = mark("the candidate answered {candidate} where the baseline answered {baseline}")
        words = Diagnosis("status", say(source, candidate=candidate, baseline=baseline))
        return Judgement(OutputClass.DIFFERENT, {"baseline_status": baseline, "candidate_status": candidate}, (words,))
    return None


def judge(question: Question, baseline: Answer, candidate: Answer, policy: Policy) -> Judgement:
    """Compare two answers to one request. Never raises on input."""
    early = judge_statuses(baseline.status, candidate.status)
    if early is not None:
        return early
    orientation = request_orientation(question)
    kinds = (policy.kind, policy.kind) if policy.kind is not Kind.AUTO else kinds_of(baseline, candidate, policy)
    kind = kinds[0]
    result = _judge_bodies(kinds, question, baseline, candidate, policy, orientation)
    result = with_types(result, baseline.kind, candidate.kind)
    if (
        (kind in _STRUCTURED or kind is Kind.JSON)
        and result.output_class is OutputClass.DIFFERENT
        and (orientation or 1) > 1
    ):
        source = mark("the candidate may ignore the EXIF orientation tag: the request's picture carries {tag}")
        hint = Diagnosis("orientation_ignored", say(source, tag=orientation))
        return replace(result, diagnoses=(hint, *result.diagnoses))
    return result


def with_types(result: Judgement, old: str, new: str) -> Judgement:
    """Note on two outputs that are the same that their media types are not: a client may go by them."""
    if old == new or result.output_class is None or result.output_class.mismatch:
        return result
    words = say("Content-Type {new!r} against {old!r}", new=new[:60], old=old[:60])
    return replace(result, note=joined("; ", filter(None, (result.note, words))))


def _judge_bodies(
    kinds: tuple[Kind, Kind],
    question: Question,
    baseline: Answer,
    candidate: Answer,
    policy: Policy,
    orientation: int | None,
) -> Judgement:
    old, new, bands = baseline.data, candidate.data, policy.image
    if old == new:
        return Judgement(OutputClass.IDENTICAL, {"size_bytes": len(old)})
    kind, other = kinds
    if other is not kind and Kind.BYTES not in kinds:
        source = mark("the candidate answers {new} where the baseline answers {old}")
        words = Diagnosis("type", say(source, new=other.value, old=kind.value))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    match kind:
        case Kind.IMAGE | Kind.RESTORE:
            return judge_image(old, new, bands, restore=kind is Kind.RESTORE, request_orientation=orientation)
        case Kind.CUTOUT:
            return judge_cutout(old, new, bands, orientation)
        case Kind.FACE_BLUR:
            return judge_face_blur(request_picture(question), old, new, bands, orientation)
        case Kind.ERASE:
            return judge_erase(request_mask(question), old, new, bands, orientation)
        case Kind.JSON:
            return judge_json(old, new, policy, lines=is_json_lines(baseline) and is_json_lines(candidate))
        case Kind.EVENTS:
            return judge_events(baseline, candidate, policy)
        case Kind.CHAT:
            return judge_chat(baseline, candidate, policy)
        case Kind.TEXT:
            exact = policy.kind is Kind.AUTO and is_for_machines(baseline)
            asked = replace(policy, min_similarity=1.0) if exact else policy
            found = judge_text((old, baseline.media_type), (new, candidate.media_type), asked)
            return judge_bytes(old, new) if found is None else found
        case _ if kind in _STRUCTURED:
            return judge_structured(kind, old, new, policy)
        case _:
            return _judge_parts(question, baseline, candidate, policy)


def _judge_parts(question: Question, baseline: Answer, candidate: Answer, policy: Policy) -> Judgement:
    """Compare two multipart answers part by part; anything else, and a route that is of bytes, as bytes."""
    old, new = (answer_parts(side) if policy.kind is Kind.AUTO else None for side in (baseline, candidate))
    if old is None and new is None:
        return judge_bytes(baseline.data, candidate.data)
    if old is None or new is None:
        side = "candidate" if new is None else "baseline"
        words = Diagnosis("parts", say("the {side}'s answer does not have whole parts as the other", side=plain(side)))
        critical = Critical.UNDECODABLE if new is None else None
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=critical)
    if len(old) != len(new):
        words = Diagnosis("parts", say("{n} parts where the baseline has {old}", n=len(new), old=len(old)))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    found = [judge(question, _leaf(a), _leaf(b), policy) for a, b in zip(old, new, strict=True)]
    worst = worst_of(found)
    unjudged = next((one for one in found if one.output_class is None), None)
    return worst if unjudged is None or (worst.output_class and worst.output_class.mismatch) else unjudged


def _leaf(part: Answer) -> Answer:
    """Return a part; one that has parts itself without its type, so that it is compared by its bytes."""
    return replace(part, media_type="") if boundary_of(part.media_type) else part


def judge_bytes(baseline: bytes, candidate: bytes) -> Judgement:
    """Compare bytes that nothing better is known about."""
    if baseline == candidate:
        return Judgement(OutputClass.IDENTICAL, {"size_bytes": len(baseline)})
    length = min(len(baseline), len(candidate))
    low, high = 0, length
    while low < high:  # bisect for the end of the common prefix: slices compare at memory speed
        middle = (low + high + 1) // 2
        low, high = (middle, high) if baseline[low:middle] == candidate[low:middle] else (low, middle - 1)
    source = mark("bytes differ from offset {n}; {old} bytes against {new}")
    words = Diagnosis("bytes", say(source, n=low, old=len(baseline), new=len(candidate)))
    return Judgement(
        OutputClass.DIFFERENT,
        {"first_difference": low, "baseline_bytes": len(baseline), "candidate_bytes": len(candidate)},
        (words,),
    )
