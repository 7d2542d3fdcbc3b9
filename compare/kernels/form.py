"""Take the picture and the mask out of a request: a raw body, or multipart/form-data (RFC 7578).

Byte-exact and linear, and never raises: a form that is none has no parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from email.parser import HeaderParser

from compare.kernels.material import Question

_MAX_PARTS = 32
PICTURE_FIELDS = ("file", "image")
MASK_FIELDS = ("mask",)


def form_parts(question: Question) -> Mapping[str, bytes]:
    """Return the parts by field name, the first of each name; empty when the body is not multipart."""
    message = Message()
    message["Content-Type"] = question.media_type.replace("\r", " ").replace("\n", " ")
    boundary = message.get_boundary()
    if question.data is None or not boundary or message.get_content_maintype() != "multipart":
        return {}
    delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
    parts: dict[str, bytes] = {}
    for chunk in (b"\r\n" + question.data).split(delimiter, _MAX_PARTS)[1:_MAX_PARTS]:
        head, separator, content = chunk.partition(b"\r\n\r\n")
        name = (
            HeaderParser()
            .parsestr(head.lstrip(b"\r\n").decode("latin-1"))
            .get_param("name", header="content-disposition")
        )
        if separator and isinstance(name, str):
            parts.setdefault(name, content)
    return parts


def request_picture(question: Question) -> bytes | None:
    """Return the bytes that should be the request's picture, or ``None`` when the body was not kept."""
    return _first(form_parts(question), PICTURE_FIELDS) or question.data


def request_mask(question: Question) -> bytes | None:
    """Return the bytes of the eraser's mask, or ``None``."""
    return _first(form_parts(question), MASK_FIELDS)


def _first(parts: Mapping[str, bytes], names: tuple[str, ...]) -> bytes | None:
    return next((parts[name] for name in names if name in parts), None)
