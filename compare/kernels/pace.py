"""How fast an event stream came: time to first token, time per token, gaps between them.

Definitions: TTFT is the arrival of the first event with content, from the moment the request was sent. TPOT is
``(E2E - TTFT) / (N - 1)``, E2E being the arrival of the last event with content; N is ``usage.completion_tokens`` where
the stream says it. Else N is the number of events with content and the numbers are named per chunk: a chunk is not a
token. Where both sides said a different number of
tokens, TPOT can be compared, E2E can not. Inter-token latency is given as p50, p99 and the longest stall.

An event arrived with the chunk that completed it. Where the sizes of the chunks are not known (records of an earlier
version, a content encoding) events and chunks are matched one to one if they are as many, else nothing is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from compare.kernels.chat import read_chat_stream
from compare.kernels.material import Answer
from compare.kernels.sse import Stream, read_stream
from compare.measurement import Number
from compare.policy import Policy
from compare.stats import percentile


def event_times(stream: Stream, answer: Answer) -> list[float] | None:
    """Return the arrival of each event in seconds, ``None`` where that cannot be known."""
    arrivals, sizes = answer.arrivals_s, answer.arrival_bytes
    if sizes and len(sizes) == len(arrivals) and not answer.encoded:
        ends = list(accumulate(sizes))
        places = [bisect_left(ends, event.end) for event in stream.events]
        if places and places[-1] >= len(arrivals):
            return None  # more chunks came than were timed
        return [arrivals[place] for place in places]
    return list(arrivals) if arrivals and len(arrivals) == len(stream.events) else None


def measure_pace(answer: Answer, policy: Policy) -> dict[str, float | int | str] | None:
    """Return the named numbers of one stream, ``None`` when nothing can be said of it."""
    stream = read_stream(answer.data)
    times = None if stream is None else event_times(stream, answer)
    if stream is None or not times:
        return None
    chat = read_chat_stream(stream, policy)
    content = [times[i] for i in chat.content_events] if chat is not None else times
    if not content:
        return None
    found: dict[str, float | int | str] = {"ttft_s": round(content[0], 6)}
    tokens = chat.completion_tokens if chat is not None else None
    n = tokens if tokens is not None and tokens > 1 else len(content)
    if n > 1:
        unit = "token" if tokens is not None and tokens > 1 else "chunk"
        found |= {"per": unit, "n": n, "tpot_s": round((content[-1] - content[0]) / (n - 1), 6)}
    return found | _gaps(content)


def _gaps(content: Sequence[float]) -> dict[str, float]:
    gaps = sorted(later - earlier for earlier, later in pairwise(content))
    if not gaps:
        return {}
    middle, tail = (percentile(gaps, p).value or 0.0 for p in (0.5, 0.99))
    return {"itl_p50_s": round(middle, 6), "itl_p99_s": round(tail, 6), "longest_stall_s": round(gaps[-1], 6)}


def pace_numbers(baseline: Answer, candidate: Answer, policy: Policy) -> dict[str, Number]:
    """Return both sides' numbers, named by side; nothing for what is no event stream."""
    if not (baseline.is_event_stream and candidate.is_event_stream):
        return {}
    found: dict[str, Number] = {}
    for role, side in (("baseline", baseline), ("candidate", candidate)):
        found |= {f"{role}_{name}": value for name, value in (measure_pace(side, policy) or {}).items()}
    return found
