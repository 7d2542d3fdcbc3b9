"""What an answer is, from its bytes and its media type: which kernel compares it where the route names none.

A picture is known by its first bytes. JSON is known by its media type; where that says nothing (a plain text, no type,
an octet stream) a pair is JSON when both sides parse as an object or a list: a kernel for texts would find a changed
number too small a difference to be one.
"""

from __future__ import annotations

from compare.kernels.document import Document, parse
from compare.kernels.material import Answer
from compare.policy import Kind, Policy

_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_TEXTUAL = ("application/xml", "application/javascript", "application/yaml")
_FOR_MACHINES = (*_TEXTUAL, "text/csv", "text/tab-separated-values", "text/xml", "text/yaml", "text/javascript")
_JSON = ("application/json", "text/json", "text/x-json", "application/x-json")
_JSON_LINES = frozenset(
    "application/" + name
    for name in ("x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines", "json-seq", "stream+json")
)
_TELLS_NOTHING = ("", "text/plain", "application/octet-stream", "binary/octet-stream")


def kinds_of(baseline: Answer, candidate: Answer, policy: Policy) -> tuple[Kind, Kind]:
    """Return the kind of both answers, by themselves and beside each other."""
    old, new = _kind_of(baseline), _kind_of(candidate)
    unsaid = [side for side, kind in ((baseline, old), (candidate, new)) if kind is not Kind.JSON]
    if unsaid and all(side.kind in _TELLS_NOTHING and _is_document(side.data, policy) for side in unsaid):
        return Kind.JSON, Kind.JSON
    return old, new


def is_picture(data: bytes) -> bool:
    """Whether the first twelve bytes are those of a picture in a known format."""
    return data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or data[4:12] == b"ftypavif"


def is_json_lines(answer: Answer) -> bool:
    """Whether the answer says that each of its lines is a JSON document."""
    return answer.kind in _JSON_LINES


def is_for_machines(answer: Answer) -> bool:
    """Whether a text is a table or a document that programs read: a single other number is another answer then, however
    alike the texts are."""
    return answer.kind in _FOR_MACHINES or answer.kind.endswith("+xml")


def _kind_of(answer: Answer) -> Kind:
    if is_picture(answer.data):
        return Kind.IMAGE
    if answer.kind in _JSON or is_json_lines(answer) or answer.kind.endswith("+json"):
        return Kind.JSON
    if answer.is_event_stream:
        return Kind.EVENTS
    if answer.kind.startswith("text/") or answer.kind.endswith("+xml") or answer.kind in _TEXTUAL:
        return Kind.TEXT
    return Kind.BYTES


def _is_document(data: bytes, policy: Policy) -> bool:
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        return False
    return isinstance(parse(data, policy.max_json_bytes, policy.max_json_depth), Document)
