"""Measure one exchange: pair it, judge its outputs, judge the control call the same way. Pure: bodies are already in
it."""

from __future__ import annotations

import traceback
from dataclasses import replace
from pathlib import PurePath

from compare.kernels.dispatch import judge, judge_statuses, request_orientation, with_types
from compare.kernels.encoding import CannotDecode, DamagedContent, decode_content
from compare.kernels.material import Answer, Question
from compare.kernels.pace import pace_numbers
from compare.measurement import Critical, Diagnosis, Judgement, Leg, Measurement, NotComparable, OutputClass
from compare.pairing import Pair, describe_leg, pair_up
from compare.phrases import Phrase, plain, say
from compare.policy import Kind, Policy
from shadow.exchange import Body, Exchange, Observation

_HEAD = say("a HEAD is answered without a body: the statuses are compared")


def measure(exchange: Exchange, policy: Policy) -> Measurement:
    """Return what this exchange teaches under ``policy``. Bodies without chunks count as not kept."""
    paired = pair_up(exchange, policy)
    question = _question(exchange)
    blank = Measurement(
        exchange_id=exchange.id,
        sequence=exchange.sequence,
        route=exchange.route,
        received_at=exchange.received_at,
        judgement=Judgement(None),
        request_orientation=request_orientation(question),
        control_asked=exchange.control is not None,
        request_bytes=exchange.request.body.size_bytes,
        served_by=exchange.primary.backend,
    )
    if isinstance(paired, NotComparable):
        return replace(blank, not_comparable=paired, judgement=Judgement(None, note=plain(paired.value)))
    baseline, candidate = describe_leg(paired.baseline), describe_leg(paired.candidate)
    judgement, lost = _judge_pair(question, paired, baseline, candidate, policy)
    control = _judge_control(question, paired, policy)
    return replace(
        blank,
        judgement=judgement,
        not_comparable=lost,
        baseline=baseline,
        candidate=candidate,
        control_class=control.output_class,
        control_diagnoses=control.diagnoses if control.output_class and control.output_class.mismatch else (),
        same_bytes=_same_bytes(paired.baseline, paired.candidate),
        control_paths=control.paths,
    )


def measure_safely(exchange: Exchange, policy: Policy) -> Measurement:
    """Measure one exchange; a defect of ours becomes a counted ``kernel_fault`` and never stops the batch."""
    try:
        return measure(exchange, policy)
    except MemoryError:
        return not_measured(exchange, NotComparable.TOOK_TOO_MUCH_MEMORY, say("measuring it took too much memory"))
    except Exception as error:  # the boundary of one task: whatever it is, the other exchanges go on
        return not_measured(exchange, NotComparable.KERNEL_FAULT, _place_of(error))


def not_measured(exchange: Exchange, reason: NotComparable, note: str) -> Measurement:
    """Return the measurement of an exchange that could not be measured."""
    return Measurement(
        exchange_id=exchange.id,
        sequence=exchange.sequence,
        route=exchange.route,
        received_at=exchange.received_at,
        judgement=Judgement(None, note=note),
        not_comparable=reason,
    )


def _place_of(error: Exception) -> str:
    """Return an error's type and where it was raised; its message may quote a body."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {PurePath(last.filename).name} line {last.lineno}"


def _question(exchange: Exchange) -> Question:
    body = exchange.request.body
    return Question(body.media_type, None if body.chunks is None else b"".join(body), exchange.request.method)


def _judge_pair(
    question: Question, pair: Pair, baseline: Leg, candidate: Leg, policy: Policy
) -> tuple[Judgement, NotComparable | None]:
    if baseline.refused and candidate.refused:
        return Judgement(None, note=refusal_words(baseline.status, candidate.status)), None
    failures = [f"{leg.backend}: {leg.failure}" for leg in (baseline, candidate) if leg.failure is not None]
    if failures:
        return Judgement(None, note=say("no output to compare; {failures}", failures=", ".join(failures))), None
    judgement = judge_observations(question, pair.baseline, pair.candidate, policy)
    if isinstance(judgement, NotComparable):
        return Judgement(None, note=plain(judgement.value)), judgement
    return judgement, NotComparable.NOT_APPLICABLE if judgement.output_class is None else None


def refusal_words(baseline: int | None, candidate: int | None) -> Phrase:
    """Return in words what both sides refused with."""
    if baseline == candidate:
        return say("both refused with {status}", status=baseline)
    return say("both refused: {baseline} against {candidate}", baseline=baseline, candidate=candidate)


def _judge_control(question: Question, pair: Pair, policy: Policy) -> Judgement:
    """Judge the baseline against its own second answer; a call that failed, was throttled or was refused like the first
    says nothing about noise."""
    if pair.control is None:
        return Judgement(None)
    first, second = describe_leg(pair.baseline), describe_leg(pair.control)
    if first.failure is not None or second.failure is not None or (first.refused and second.refused):
        return Judgement(None)
    judgement = judge_observations(question, pair.baseline, pair.control, policy)
    return Judgement(None) if isinstance(judgement, NotComparable) else judgement


def judge_observations(
    question: Question, old: Observation, new: Observation, policy: Policy
) -> Judgement | NotComparable:
    """Compare two whole answers.

    Equal hashes need no bytes where bodies are beyond the policy's cap. Where bodies are purged the pair is not judged,
    equal or not: if only the equal ones counted, old pairs would all speak for the candidate.
    """
    statuses = judge_statuses(old.status or 0, new.status or 0)
    if statuses is not None:
        return statuses
    if question.method == "HEAD":
        return Judgement(OutputClass.IDENTICAL, note=_HEAD)
    if any(_purged(side, policy) for side in (old, new)):
        return _judge_digests(old, new) if policy.kind is Kind.BYTES else NotComparable.BODIES_NOT_KEPT
    if _same_bytes(old, new) and not all(side.arrivals_s and side.body and side.body.chunks for side in (old, new)):
        same = Judgement(OutputClass.IDENTICAL, {"size_bytes": old.body.size_bytes if old.body else 0})
        return with_types(same, _kind(old), _kind(new))
    sides = []
    for role, side in (("baseline", old), ("candidate", new)):
        answer = _answer(side, policy)
        if not isinstance(answer, Answer):
            return answer if isinstance(answer, NotComparable) else _undecodable(role, answer)
        sides.append(answer)
    judgement, pace = judge(question, sides[0], sides[1], policy), pace_numbers(sides[0], sides[1], policy)
    return replace(judgement, numbers={**judgement.numbers, **pace}) if pace else judgement


def _kind(side: Observation) -> str:
    return Answer(side.body.media_type if side.body is not None else "", b"").kind


def _judge_digests(old: Observation, new: Observation) -> Judgement | NotComparable:
    """Compare answers byte for byte without their bytes. Under two encodings equal content has different bytes."""
    if not all(side.body is not None and side.body.sha256 for side in (old, new)):
        return NotComparable.BODIES_NOT_KEPT
    if _same_bytes(old, new):
        return Judgement(OutputClass.IDENTICAL, note=say("equal hashes; no bodies are kept"))
    if old.body is None or new.body is None or old.body.content_encoding != new.body.content_encoding:
        return NotComparable.BODIES_NOT_KEPT
    words = say("the bytes differ; no bodies are kept, so how much is not known")
    return Judgement(OutputClass.DIFFERENT, diagnoses=(Diagnosis("bytes_differ", words),))


def _purged(side: Observation, policy: Policy) -> bool:
    """Whether a body that would have been loaded is not there any more."""
    body = side.body
    return body is not None and body.chunks is None and 0 < body.size_bytes <= policy.max_body_bytes


def _same_bytes(old: Observation, new: Observation) -> bool:
    a, b = old.body, new.body
    return a is not None and b is not None and (a.sha256, a.content_encoding) == (b.sha256, b.content_encoding)


def _answer(side: Observation, policy: Policy) -> Answer | NotComparable | CannotDecode | DamagedContent:
    body = side.body or Body(digest="", size_bytes=0, chunks=())
    if body.chunks is None:
        return NotComparable.BODIES_NOT_KEPT
    try:
        data = decode_content(b"".join(body), body.content_encoding, policy.max_body_bytes)
    except (CannotDecode, DamagedContent) as error:
        return error
    encoded = body.content_encoding.strip().lower() not in ("", "identity")
    return Answer(body.media_type, data, side.status or 0, side.arrivals_s, side.arrival_bytes, encoded)


def _undecodable(role: str, error: CannotDecode | DamagedContent) -> Judgement:
    if isinstance(error, CannotDecode):
        return Judgement(None, note=say("{side}: {why}", side=plain(role), why=str(error)))
    words = Diagnosis("undecodable", say("the {side}'s answer is broken: {why}", side=plain(role), why=str(error)))
    critical = Critical.UNDECODABLE if role == "candidate" else None
    return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=critical)
