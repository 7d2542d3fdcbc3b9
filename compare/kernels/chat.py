"""OpenAI-style chat completions, streamed or whole: what was said, how it ended, which tools were called.

Text from the same weights differs from call to call, even at temperature 0, so equality of texts is a rate to hold
against the baseline's own. What is held to be the same are the invariants: the finish reason, a refusal, the names of
tools with their arguments (as JSON), an answer that is JSON where the baseline's is; and that the stream is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from compare.kernels.document import Document, Unparsable, parse
from compare.kernels.json_rules import canonical, is_number
from compare.kernels.sse import Stream
from compare.kernels.text import judge_texts
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, plain, say
from compare.policy import Policy

DONE = "[DONE]"
_MAX_CHOICES = 128
_THOUGHTS = ("reasoning_content", "reasoning")
_MAX_TOOLS = 128


@dataclass(slots=True)
class Choice:
    """One completion. ``tools`` are (name, arguments) in their order, arguments as the text that came; ``thought`` is
    the reasoning that some servers send beside the text."""

    text: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    finish: str | None = None
    refused: bool = False
    tools: dict[int, list[str]] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The text, joined."""
        return "".join(self.text)


@dataclass(slots=True)
class Chat:
    """An answer. ``content_events`` are the indices of the events that brought content, in order."""

    choices: dict[int, Choice] = field(default_factory=dict)
    completion_tokens: int | None = None
    error: bool = False
    done: bool = False
    content_events: list[int] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether every choice says how it ended. (A stream need not end in ``[DONE]``.)"""
        return bool(self.choices) and all(choice.finish for choice in self.choices.values())


def read_chat_stream(stream: Stream, policy: Policy) -> Chat | None:
    """Return the chat that a stream's events make up, ``None`` when they are no chat completion chunks."""
    chat, known = Chat(), False
    for number, event in enumerate(stream.events):
        if event.data == DONE:
            chat.done = True
            continue
        document = parse(event.data.encode(), policy.max_json_bytes, policy.max_json_depth)
        if not isinstance(document, Document) or not isinstance(document.value, dict):
            return None
        part = document.value
        if isinstance(part.get("choices"), list):
            known = True
        elif "error" not in part:
            return None
        if _take(chat, part, "delta"):
            chat.content_events.append(number)
    return chat if known or chat.error else None


def read_chat_answer(value: Any) -> Chat | None:
    """Return the chat of a whole JSON answer, ``None`` when it is no chat completion."""
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        return None
    if not all(isinstance(c, dict) and isinstance(c.get("message"), dict) for c in value["choices"]):
        return None
    chat = Chat(done=True)
    _take(chat, value, "message")
    return chat


def _take(chat: Chat, part: dict[str, Any], key: str) -> bool:
    """Take up one part; return whether it brought content of any choice."""
    chat.error |= bool(part.get("error"))
    usage = part.get("usage")
    if isinstance(usage, dict):
        count = usage.get("completion_tokens")
        if is_number(count) and 0 <= count < 10**12:
            chat.completion_tokens = int(count)
    brought = False
    choices = part.get("choices")
    for item in choices if isinstance(choices, list) else ():
        if not isinstance(item, dict):
            continue
        index = 0 if item.get("index") is None else item["index"]
        if isinstance(index, int) and (index in chat.choices or len(chat.choices) < _MAX_CHOICES):
            brought |= _take_choice(chat.choices.setdefault(index, Choice()), item, key)
    return brought


def _take_choice(choice: Choice, item: dict[str, Any], key: str) -> bool:
    if isinstance(item.get("finish_reason"), str):
        choice.finish = item["finish_reason"]
    said = item.get(key)
    if not isinstance(said, dict):
        said = {"content": item.get("text")}  # a completion of the older kind has no message
    choice.refused |= bool(said.get("refusal"))
    brought = False
    for words in ("content", "refusal"):
        if text := _text_of(said.get(words)):
            choice.text.append(text)
            brought = True
    choice.thought.extend(_text_of(said.get(name)) for name in _THOUGHTS)
    if "function_call" in said:  # how a tool was called before there could be several
        brought |= _take_call(choice, 0, {"function": said["function_call"]})
    calls = said.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        brought |= _take_call(choice, place, call)
    return brought


def _text_of(content: Any) -> str:
    """Return what a message says: its content is a text, or a list of parts of which some hold text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _take_call(choice: Choice, place: int, call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    index = place if call.get("index") is None else call["index"]
    if not isinstance(index, int) or (index not in choice.tools and len(choice.tools) >= _MAX_TOOLS):
        return False
    tool = choice.tools.setdefault(index, ["", ""])
    parts = [str(function[name]) if isinstance(function.get(name), str) else "" for name in ("name", "arguments")]
    tool[0], tool[1] = tool[0] + parts[0], tool[1] + parts[1]
    return any(parts)


def judge_chats(old: Chat, new: Chat, policy: Policy) -> Judgement:
    """Compare two answers: wholeness first, then the invariants, then the texts."""
    numbers: dict[str, Number] = {
        "choices": len(new.choices),
        "baseline_tokens": old.completion_tokens,
        "candidate_tokens": new.completion_tokens,
    }
    if old.error and new.error:
        return Judgement(None, numbers, note=say("both answers bring an error"))
    for role, side, other in (("candidate", new, old), ("baseline", old, new)):
        if (side.error or not side.whole) and not (other.error or not other.whole):
            source = mark("the {side}'s answer ends before any finish reason: it is cut short")
            source = mark("the {side}'s answer brings an error") if side.error else source
            critical = Critical.UNDECODABLE if role == "candidate" else None
            words = Diagnosis("truncated", say(source, side=plain(role)))
            return Judgement(OutputClass.BROKEN, numbers, (words,), critical)
    if old.choices.keys() != new.choices.keys():
        counts = {"n": len(new.choices), "old": len(old.choices)}
        words = Diagnosis("choices", say("{n} choices where the baseline has {old}", **counts))
        return Judgement(OutputClass.DIFFERENT, numbers, (words,))
    pairs = [(old.choices[index], new.choices[index]) for index in sorted(old.choices)]
    broken = [words for a, b in pairs for words in _invariants(a, b, policy)]
    texts = [judge_texts(a.said, b.said, policy.min_similarity) for a, b in pairs]
    lowest = min(texts, key=_likeness, default=Judgement(OutputClass.IDENTICAL))
    numbers |= {**lowest.numbers, "same_text": sum(t.output_class is OutputClass.IDENTICAL for t in texts)}
    if broken:
        critical = next((Critical.BROKEN_SCHEMA for words in broken if words.code == "schema"), None)
        broke = OutputClass.BROKEN if critical else OutputClass.DIFFERENT
        return Judgement(broke, numbers, (*broken, *lowest.diagnoses), critical)
    name = lowest.output_class
    if name is OutputClass.IDENTICAL and any("".join(a.thought) != "".join(b.thought) for a, b in pairs):
        name = OutputClass.EQUIVALENT  # the same is said, which was thought out otherwise
    return Judgement(name, numbers, lowest.diagnoses, lowest.critical, lowest.note)


def _likeness(judgement: Judgement) -> tuple[int, float]:
    order = {None: 0, OutputClass.BROKEN: 0, OutputClass.DIFFERENT: 1, OutputClass.EQUIVALENT: 2}
    chrf = judgement.numbers.get("chrf", 1.0)
    return order.get(judgement.output_class, 3), chrf if isinstance(chrf, float) else 1.0


def _invariants(a: Choice, b: Choice, policy: Policy) -> list[Diagnosis]:
    found = []
    if a.finish != b.finish:
        words = say("finish reason {new} against {old}", new=_word(b.finish), old=_word(a.finish))
        found.append(Diagnosis("finish_reason", words))
    if a.refused != b.refused:
        side = plain("candidate" if b.refused else "baseline")
        found.append(Diagnosis("refusal", say("the {side} alone refuses to answer", side=side)))
    if [tool[0] for tool in _ordered(a)] != [tool[0] for tool in _ordered(b)]:
        words = say("{new} tool calls against {old}, or other tools", new=len(b.tools), old=len(a.tools))
        found.append(Diagnosis("tools", words))
    elif any(not _same_arguments(x[1], y[1], policy) for x, y in zip(_ordered(a), _ordered(b), strict=True)):
        found.append(Diagnosis("tool_arguments", say("the same tools are called with other arguments")))
    if _is_object(a.said, policy) and not _is_object(b.said, policy):
        found.append(Diagnosis("schema", say("the candidate's text is no JSON document where the baseline's is")))
    return found


def _ordered(choice: Choice) -> Sequence[list[str]]:
    return [choice.tools[index] for index in sorted(choice.tools)]


def _word(reason: str | None) -> str:
    """Return a finish reason; what looks like no word of the API is not repeated."""
    known = reason and len(reason) <= 30 and reason.replace("_", "").isalpha()
    return repr(reason) if known else say("of another kind")


def _same_arguments(a: str, b: str, policy: Policy) -> bool:
    if a == b:
        return True
    one, other = (_parsed(side, policy) for side in (a, b))
    if not (isinstance(one, Document) and isinstance(other, Document)):
        return False
    return canonical(one.value) == canonical(other.value)


def _is_object(text: str, policy: Policy) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    return isinstance(_parsed(text.strip(), policy), Document)


def _parsed(text: str, policy: Policy) -> Document | Unparsable:
    return parse(text.encode("utf-8", "replace"), policy.max_json_bytes, policy.max_json_depth)
