"""Event streams: chat completions by their meaning, other streams event by event."""

from __future__ import annotations

from compare.kernels.chat import Chat, judge_chats, read_chat_answer, read_chat_stream
from compare.kernels.document import Document, parse
from compare.kernels.json_kernel import judge_json
from compare.kernels.material import Answer
from compare.kernels.sse import Event, Stream, read_stream
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, plain, say
from compare.policy import Policy

_EVENTS_COMPARED = 20_000


def judge_events(baseline: Answer, candidate: Answer, policy: Policy) -> Judgement:
    """Compare two bodies of server-sent events."""
    old, new = read_stream(baseline.data), read_stream(candidate.data)
    if old is None and new is None:
        return Judgement(None, note=say("neither answer is a readable event stream"))
    if old is None or new is None:
        side = "candidate" if new is None else "baseline"
        words = Diagnosis("stream", say("the {side}'s answer is no readable event stream", side=plain(side)))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.UNDECODABLE if old else None)
    one, other = read_chat_stream(old, policy), read_chat_stream(new, policy)
    if one is not None and other is not None:
        return _cut(judge_chats(one, other, policy), old, new)
    if one is not None:
        source = mark("the candidate's events are no chat completion chunks where the baseline's are")
        words = Diagnosis("schema", say(source))
        return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA)
    return _cut(_plain(old, new, policy), old, new)


def _cut(judgement: Judgement, old: Stream, new: Stream) -> Judgement:
    """Add that a stream ends inside of an event where the other does not."""
    if old.cut == new.cut:
        return judgement
    side = "candidate" if new.cut else "baseline"
    words = Diagnosis("truncated", say("the {side}'s stream ends inside of an event", side=plain(side)))
    critical = Critical.UNDECODABLE if new.cut else None
    return Judgement(OutputClass.BROKEN, judgement.numbers, (words, *judgement.diagnoses), critical, judgement.note)


def _plain(old: Stream, new: Stream, policy: Policy) -> Judgement:
    """Compare event by event: the same names in the same order, data as JSON where both are, else as text."""
    numbers: dict[str, Number] = {"events_baseline": len(old.events), "events_candidate": len(new.events)}
    if len(old.events) > _EVENTS_COMPARED:
        return Judgement(None, numbers, note=say("more than {n:,} events to compare", n=_EVENTS_COMPARED))
    if len(old.events) != len(new.events):
        counts = {"n": len(new.events), "old": len(old.events)}
        words = Diagnosis("events", say("{n} events where the baseline sends {old}", **counts))
        return Judgement(OutputClass.DIFFERENT, numbers, (words,))
    worst = Judgement(OutputClass.IDENTICAL)
    apart = 0
    order = list(OutputClass)
    for a, b in zip(old.events, new.events, strict=True):
        if (a.name, a.data) == (b.name, b.data):
            continue
        found = _judge_event(a, b, policy)
        name = found.output_class or OutputClass.DIFFERENT
        apart += name.mismatch
        if order.index(name) > order.index(worst.output_class or OutputClass.IDENTICAL):
            worst = Judgement(name, found.numbers, found.diagnoses, found.critical, found.note)
    return Judgement(
        worst.output_class, {**numbers, "events_apart": apart, **worst.numbers}, worst.diagnoses, worst.critical
    )


def _judge_event(a: Event, b: Event, policy: Policy) -> Judgement:
    bodies = a.data.encode(), b.data.encode()
    documents = [parse(data, policy.max_json_bytes, policy.max_json_depth) for data in bodies]
    if a.name == b.name and all(isinstance(document, Document) for document in documents):
        return judge_json(*bodies, policy)
    words = Diagnosis("events", say("events differ in their name or in data that is no JSON"))
    return Judgement(OutputClass.DIFFERENT, diagnoses=(words,))


def judge_chat(baseline: Answer, candidate: Answer, policy: Policy) -> Judgement:
    """Compare two chat completions, each a stream or a whole JSON answer."""
    old, new = (read_chat(side, policy) for side in (baseline, candidate))
    if old is not None and new is not None:
        return judge_chats(old, new, policy)
    if old is None and new is None:
        return Judgement(None, note=say("neither answer is a chat completion"))
    side = "candidate" if new is None else "baseline"
    words = Diagnosis("schema", say("the {side}'s answer is no chat completion", side=plain(side)))
    return Judgement(OutputClass.BROKEN, diagnoses=(words,), critical=Critical.BROKEN_SCHEMA if old else None)


def read_chat(answer: Answer, policy: Policy) -> Chat | None:
    """Return the chat completion of an answer, streamed or whole, ``None`` when it is none."""
    if answer.is_event_stream or answer.data.lstrip()[:5] == b"data:":
        stream = read_stream(answer.data)
        return None if stream is None else read_chat_stream(stream, policy)
    document = parse(answer.data, policy.max_json_bytes, policy.max_json_depth)
    return read_chat_answer(document.value) if isinstance(document, Document) else None
