"""Choose the kernel: by the policy's kind, else by the answers' content.

Statuses come before bodies: only a 2xx has an output. Where one side has one and the other refused (404, 415, a
redirect) that is a mismatch of its own; where neither has, there is nothing to judge, whatever the error pages say.
"""

from __future__ import annotations

from compare.kernels.cutout import judge_cutout
from compare.kernels.erase import judge_erase
from compare.kernels.events import judge_chat, judge_events
from compare.kernels.face_blur import judge_face_blur
from compare.kernels.form import request_mask, request_picture
from compare.kernels.image import judge_image
from compare.kernels.json_kernel import judge_json
from compare.kernels.material import Answer, Question
from compare.kernels.pixels import read_orientation
from compare.kernels.structured import judge_structured
from compare.kernels.text import judge_text
from compare.measurement import Critical, Diagnosis, Judgement, OutputClass
from compare.phrases import mark, say
from compare.policy import Kind, Policy

_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_TEXTUAL = ("application/xml", "application/javascript", "application/x-ndjson", "application/yaml")
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
    kind = policy.kind if policy.kind is not Kind.AUTO else _kind_of(baseline)
    result = _judge_bodies(kind, question, baseline, candidate, policy, orientation)
    if (
        (kind in _STRUCTURED or kind is Kind.JSON)
        and result.output_class is OutputClass.DIFFERENT
        and (orientation or 1) > 1
    ):
        source = mark("the candidate may ignore the EXIF orientation tag: the request's picture carries {tag}")
        hint = Diagnosis("orientation_ignored", say(source, tag=orientation))
        return Judgement(result.output_class, result.numbers, (hint, *result.diagnoses), result.critical, result.note)
    return result


def _kind_of(answer: Answer) -> Kind:
    data = answer.data
    if data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or data[4:12] == b"ftypavif":
        return Kind.IMAGE
    if answer.kind == "application/json" or answer.kind.endswith("+json"):
        return Kind.JSON
    if answer.is_event_stream:
        return Kind.EVENTS
    if answer.kind.startswith("text/") or answer.kind.endswith("+xml") or answer.kind in _TEXTUAL:
        return Kind.TEXT
    return Kind.BYTES


def _judge_bodies(
    kind: Kind, question: Question, baseline: Answer, candidate: Answer, policy: Policy, orientation: int | None
) -> Judgement:
    old, new, bands = baseline.data, candidate.data, policy.image
    if old == new:
        return Judgement(OutputClass.IDENTICAL, {"size_bytes": len(old)})
    if policy.kind is Kind.AUTO and (other := _kind_of(candidate)) is not kind and Kind.BYTES not in (kind, other):
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
            return judge_json(old, new, policy)
        case Kind.EVENTS:
            return judge_events(baseline, candidate, policy)
        case Kind.CHAT:
            return judge_chat(baseline, candidate, policy)
        case Kind.TEXT:
            found = judge_text((old, baseline.media_type), (new, candidate.media_type), policy)
            return judge_bytes(old, new) if found is None else found
        case _ if kind in _STRUCTURED:
            return judge_structured(kind, old, new, policy)
        case _:
            return judge_bytes(old, new)


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
