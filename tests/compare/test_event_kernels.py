"""Event streams and chat completions: events and not chunks, invariants and not wording, paces from arrivals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.kernels.chat import read_chat_stream
from compare.kernels.dispatch import judge
from compare.kernels.events import read_chat
from compare.kernels.material import Answer, Question
from compare.kernels.pace import measure_pace
from compare.kernels.sse import read_stream
from compare.measurement import Critical, Judgement, OutputClass
from compare.measuring import measure
from compare.policy import Kind
from tests.compare.examples import answer as recorded
from tests.compare.examples import exchange, policy

SSE = "text/event-stream; charset=utf-8"
POLICY = policy(Kind.AUTO)


def chunk(content: str | None = None, finish: str | None = None, **delta: Any) -> bytes:
    said = {**({} if content is None else {"content": content}), **delta}
    value = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}
    return f"data: {json.dumps(value)}\n\n".encode()


def usage(tokens: int) -> bytes:
    return f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': tokens}})}\n\n".encode()


DONE = b"data: [DONE]\n\n"


def chat(*words: str, finish: str | None = "stop", tail: bytes = DONE) -> bytes:
    parts = [chunk(role="assistant", content=""), *(chunk(word) for word in words)]
    return b"".join([*parts, chunk(finish=finish) if finish else b"", tail])


def stream(a: bytes, b: bytes, kind: Kind = Kind.AUTO) -> Judgement:
    return judge(Question(), Answer(SSE, a), Answer(SSE, b), policy(kind))


WORDS = ("The ", "answer ", "is ", "forty-two, ", "as ", "everybody ", "knows.")


def test_events_are_read_as_a_browser_reads_them() -> None:
    body = b"\xef\xbb\xbf: hello\nevent: note\ndata: one\ndata: two\n\nid: 7\ndata:three\r\n\r\n\n\ndata: cut"
    found = read_stream(body)
    assert found is not None
    assert [(e.name, e.data) for e in found.events] == [("note", "one\ntwo"), ("message", "three")]
    assert found.cut
    assert read_stream(b"data: \xff\xfe\n\ndata: x\n\n") is None


@given(st.integers(1, 30), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_do_not_depend_on_the_line_ends(count: int, end: bytes) -> None:
    body = b"".join(b"event: e\ndata: %d\n\n" % n for n in range(count)).replace(b"\n", end)
    found = read_stream(body)
    assert found is not None
    assert [e.data for e in found.events] == [str(n) for n in range(count)]
    assert found.events[-1].end == len(body)


def test_the_same_answer_in_other_events_is_the_same_text() -> None:
    found = stream(chat(*WORDS), chat("".join(WORDS[:3]), "".join(WORDS[3:])))
    assert found.output_class is OutputClass.IDENTICAL
    assert found.numbers["same_text"] == 1


def test_another_wording_is_held_against_the_noise_and_never_critical() -> None:
    near = stream(chat(*WORDS), chat("The answer is forty-two, as everyone knows."))
    assert near.output_class is OutputClass.EQUIVALENT
    far = stream(chat(*WORDS), chat("I would rather not speculate about that question now."))
    assert far.output_class is OutputClass.DIFFERENT
    assert far.critical is None
    assert "speculate" not in repr(far)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (chat(*WORDS, finish="length"), "finish_reason"),
        (chat(*WORDS[:1], finish="stop"), "length"),
        (b"".join([chunk(refusal="I cannot"), chunk("".join(WORDS)), chunk(finish="stop"), DONE]), "refusal"),
        (chat(*WORDS).replace(b"forty-two, ", b"").replace(b'"index": 0', b'"index": 1'), "choices"),
    ],
)
def test_broken_invariants_are_mismatches_with_a_name(other: bytes, code: str) -> None:
    found = stream(chat(*WORDS), other)
    assert found.output_class is OutputClass.DIFFERENT
    assert code in [d.code for d in found.diagnoses]


@pytest.mark.parametrize(
    "cut",
    [
        chat(*WORDS, finish=None, tail=b""),
        chat(*WORDS)[: len(chat(*WORDS)) // 2],
        b'data: {"error": {"message": "no"}}\n\n',
        b"",
    ],
)
def test_a_stream_that_is_cut_short_is_broken_and_critical(cut: bytes) -> None:
    found = stream(chat(*WORDS), cut)
    assert found.output_class is OutputClass.BROKEN
    assert found.critical in (Critical.UNDECODABLE, Critical.BROKEN_SCHEMA)
    the_other_way = stream(cut, chat(*WORDS))
    assert the_other_way.critical is None


def call(arguments: str, name: str = "weather") -> bytes:
    half = len(arguments) // 2
    first = {"index": 0, "function": {"name": name, "arguments": arguments[:half]}}
    second = {"index": 0, "function": {"arguments": arguments[half:]}}
    parts = [chunk(tool_calls=[first]), chunk(tool_calls=[second]), chunk(finish="tool_calls"), DONE]
    return b"".join(parts)


def test_tool_calls_are_compared_by_name_and_by_the_meaning_of_their_arguments() -> None:
    base = call('{"city": "Seoul", "days": 2}')
    assert stream(base, call('{ "days": 2, "city": "Seoul" }')).output_class is OutputClass.IDENTICAL
    assert stream(base, call('{"city": "Busan", "days": 2}')).diagnoses[0].code == "tool_arguments"
    assert stream(base, call('{"city": "Seoul", "days": 2}', "forecast")).diagnoses[0].code == "tools"
    assert "Busan" not in repr(stream(base, call('{"city": "Busan"}')))


def test_text_that_should_be_json_and_is_not_breaks_the_schema() -> None:
    found = stream(chat('{"a": ', "1}"), chat('{"a": 1'))
    assert found.critical is Critical.BROKEN_SCHEMA


def test_a_whole_answer_can_be_compared_with_a_streamed_one() -> None:
    message = {"role": "assistant", "content": "".join(WORDS)}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    pair = Answer("application/json", whole), Answer(SSE, chat(*WORDS))
    assert judge(Question(), *pair, policy(Kind.CHAT)).output_class is OutputClass.IDENTICAL
    assert read_chat(Answer("application/json", b"[]"), POLICY) is None


def test_content_in_parts_is_the_text_that_they_make_up() -> None:
    def whole(*texts: str) -> bytes:
        parts = [{"type": "text", "text": text} for text in texts]
        return json.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}).encode()

    cut, joined, other = (
        Answer("application/json", whole(*texts))
        for texts in (("It is ", "forty-two."), ("It is forty-two.",), ("I would rather not speculate.",))
    )
    assert judge(Question(), cut, joined, policy(Kind.CHAT)).output_class is OutputClass.IDENTICAL
    assert judge(Question(), cut, other, policy(Kind.CHAT)).output_class is OutputClass.DIFFERENT


def test_other_streams_are_compared_event_by_event() -> None:
    a = b'event: tick\ndata: {"n": 1}\n\nevent: tick\ndata: {"n": 2}\n\n'
    assert stream(a, a.replace(b'{"n": 1}', b'{"n":1.0}')).output_class is OutputClass.IDENTICAL
    assert stream(a, a.replace(b"2", b"3")).numbers["events_apart"] == 1
    assert stream(a, a.replace(b"event: tick", b"event: tock")).output_class is OutputClass.DIFFERENT
    assert stream(a, a[: a.index(b"event", 5)]).diagnoses[0].code == "events"
    assert stream(a, a + b"data: half").diagnoses[0].code == "truncated"


def test_usage_and_content_events_are_found() -> None:
    found = read_stream(chat("a", "b", tail=usage(17) + DONE))
    assert found is not None
    told = read_chat_stream(found, POLICY)
    assert told is not None
    assert told.completion_tokens == 17
    assert told.content_events == [1, 2]


def timed(parts: list[bytes], arrivals: list[float]) -> Answer:
    return Answer(SSE, b"".join(parts), 200, tuple(arrivals), tuple(map(len, parts)))


def test_paces_come_from_the_arrival_of_the_chunk_that_completed_an_event() -> None:
    parts = [chunk(role="assistant", content=""), *(chunk(str(n)) for n in range(5)), chunk(finish="stop") + DONE]
    found = measure_pace(timed(parts, [0.1, 0.5, 0.6, 0.7, 1.2, 1.3, 1.4]), POLICY)
    assert found is not None
    assert found["ttft_s"] == 0.5
    assert (found["per"], found["n"]) == ("chunk", 5)
    assert found["tpot_s"] == pytest.approx(0.8 / 4)
    assert found["longest_stall_s"] == pytest.approx(0.5)
    assert found["itl_p50_s"] == pytest.approx(0.1)
    told = measure_pace(timed([*parts, usage(9)], [0.1, 0.5, 0.6, 0.7, 1.2, 1.3, 1.4, 1.4]), POLICY)
    assert told is not None
    assert (told["per"], told["n"]) == ("token", 9)
    assert told["tpot_s"] == pytest.approx(0.8 / 8)


def test_events_cut_over_chunks_arrive_with_their_last_byte() -> None:
    body = chunk("one") + chunk("two")
    cut = len(chunk("one")) - 5
    found = measure_pace(timed([body[:cut], body[cut : cut + 20], body[cut + 20 :]], [0.1, 0.2, 0.3]), POLICY)
    assert found is not None
    assert found["ttft_s"] == 0.2
    assert found["longest_stall_s"] == pytest.approx(0.1)


def test_without_sizes_of_chunks_a_pace_is_told_only_where_events_and_chunks_are_as_many() -> None:
    parts = [chunk("a"), chunk("b")]
    even = Answer(SSE, b"".join(parts), 200, (0.1, 0.4))
    assert (measure_pace(even, POLICY) or {})["ttft_s"] == 0.1
    assert measure_pace(Answer(SSE, b"".join(parts), 200, (0.1, 0.4, 0.5)), POLICY) is None
    assert measure_pace(Answer(SSE, b"".join(parts)), POLICY) is None


def test_a_recorded_stream_is_measured_with_its_pace_also_where_the_bytes_are_equal() -> None:
    body = chat(*WORDS)
    sizes = tuple(len(part) + 2 for part in body.split(b"\n\n")[:-1])
    sides = [
        replace(
            recorded(name, body, SSE),
            arrivals_s=tuple(0.1 * n + start for n in range(len(sizes))),
            arrival_bytes=sizes,
        )
        for name, start in (("cloud", 0.4), ("onprem", 0.1))
    ]
    found = measure(exchange(1, *sides), POLICY)
    assert found.judgement.output_class is OutputClass.IDENTICAL
    assert found.judgement.numbers["baseline_ttft_s"] == pytest.approx(0.5)
    assert found.judgement.numbers["candidate_ttft_s"] == pytest.approx(0.2)
    gone = measure(exchange(1, *(replace(side, arrival_bytes=()) for side in sides)), POLICY)
    assert gone.judgement.numbers["candidate_ttft_s"] == pytest.approx(0.2)


def older(**parts: Any) -> bytes:
    end = {"choices": [{"index": 0, "finish_reason": "stop", "delta": {}, "text": ""}]}
    value = {"choices": [{"index": 0, "finish_reason": None, **parts}]}
    return f"data: {json.dumps(value)}\n\ndata: {json.dumps(end)}\n\n".encode() + DONE


def test_older_completions_are_judged_by_their_text() -> None:
    found = stream(older(text="Nobody knows the answer."), older(text="Bananas are yellow, mostly."))
    assert found.output_class is OutputClass.DIFFERENT
    assert stream(older(text="The same."), older(text="The same.")).output_class is OutputClass.IDENTICAL


@pytest.mark.parametrize("call", [{"name": "erase", "arguments": "{}"}, {"name": "look", "arguments": '{"at": 2}'}])
def test_older_function_calls_are_judged_as_tools(call: dict[str, str]) -> None:
    first = older(delta={"function_call": {"name": "look", "arguments": '{"at": 1}'}})
    found = stream(first, older(delta={"function_call": call}))
    assert found.output_class is OutputClass.DIFFERENT
    assert found.diagnoses[0].code in {"tools", "tool_arguments"}


def test_refusals_are_judged_by_their_words() -> None:
    first, second = (chunk(refusal=text) + chunk(finish="stop") for text in ("I cannot help.", "Bananas are yellow."))
    assert stream(first, second).output_class is OutputClass.DIFFERENT
    assert stream(first, first + DONE).output_class is OutputClass.IDENTICAL


def test_a_choice_whose_index_is_null_is_the_first() -> None:
    def unnumbered(*words: str) -> bytes:
        return chat(*words).replace(b'"index": 0', b'"index": null')

    assert stream(unnumbered(*WORDS), unnumbered("Bananas ", "are yellow.")).output_class is OutputClass.DIFFERENT
    assert stream(chat(*WORDS), unnumbered(*WORDS)).output_class is OutputClass.IDENTICAL


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_answers_that_were_thought_out_otherwise_are_not_identical(name: str) -> None:
    first, second = (chunk(**{name: text}) + chat("Yes.") for text in ("Two is even.", "All know it."))
    assert stream(first, second).output_class is OutputClass.EQUIVALENT
    assert stream(first, first + b": bye\n\n").output_class is OutputClass.IDENTICAL


def test_two_answers_that_bring_an_error_are_no_agreement() -> None:
    first, second = (f'data: {{"error": {{"message": "{text}"}}}}\n\n'.encode() for text in ("too busy", "no model"))
    assert stream(first, second).output_class is None
    assert stream(chat("Some", finish=None, tail=first), chat("Some", finish=None, tail=second)).output_class is None
