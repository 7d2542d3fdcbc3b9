"""Answers of several parts (RFC 2046 section 5.1): a picture beside its JSON, say.

The boundary is chosen anew for every answer, so that whole bodies are never the same bytes; the parts can be.
"""

from __future__ import annotations

from dataclasses import replace
from email.message import Message
from email.parser import BytesHeaderParser

from compare.kernels.material import Answer

MOST_PARTS = 256


def boundary_of(media_type: str) -> str | None:
    """Return the boundary that a Content-Type names, ``None`` where it is of no multipart type."""
    message = Message()
    message["Content-Type"] = media_type.replace("\r", " ").replace("\n", " ")
    return message.get_boundary() if message.get_content_maintype() == "multipart" else None


def answer_parts(answer: Answer) -> list[Answer] | None:
    """Return the parts in their order, each as an answer of its own, ``None`` where the body is cut short or has more
    than ``MOST_PARTS``, or the answer is not multipart. Linear."""
    boundary = boundary_of(answer.media_type)
    if not boundary:
        return None
    delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
    _, *chunks = (b"\r\n" + answer.data).split(delimiter, MOST_PARTS + 2)
    parts = list[Answer]()
    for chunk in chunks:
        if chunk.startswith(b"--"):
            return parts
        head, separator, content = chunk.partition(b"\r\n\r\n")
        if not separator or len(parts) == MOST_PARTS:
            return None
        fields = BytesHeaderParser().parsebytes(head.lstrip(b" \t\r\n"))
        parts.append(replace(answer, media_type=str(fields.get("Content-Type", "text/plain")), data=content))
    return None
