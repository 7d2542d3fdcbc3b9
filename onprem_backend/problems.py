"""What can go wrong, as RFC 9457 problems.

One type, ``Problem``; callers act on its stable ``code``. 4xx is the client's fault, 500 ours, 503 passes with time
or with an operator's hand. ``Stopped`` is not an answer: the caller has gone and a session gave up on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

CODES: Mapping[str, int] = {
    "empty_body": 400,
    "malformed_form": 400,
    "malformed_zip": 400,
    "unauthorized": 401,
    "not_found": 404,
    "unknown_model": 404,
    "feature_disabled": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "body_timeout": 408,
    "body_too_large": 413,
    "too_many_pixels": 413,
    "too_many_pictures": 413,
    "unsupported_format": 415,
    "unsupported_pixels": 415,
    "form_required": 415,
    "album_required": 415,
    "damaged_image": 422,
    "too_many_frames": 422,
    "missing_field": 422,
    "duplicate_field": 422,
    "not_a_file": 422,
    "unknown_option": 422,
    "mask_size_mismatch": 422,
    "mask_covers_everything": 422,
    "no_face_found": 422,
    "unsafe_name": 422,
    "internal_error": 500,
    "inference_failed": 500,
    "starting": 503,
    "model_not_installed": 503,
    "model_unloaded": 503,
    "model_unusable": 503,
    "overloaded": 503,
    "inference_timeout": 503,
    "out_of_memory": 503,
    "device_broken": 503,
}


class Problem(Exception):
    """An answer that is an error. ``extra`` becomes extension members of the problem document (RFC 9457 section
    3.2)."""

    def __init__(self, code: str, detail: str, *, retry_after_s: int | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.status = CODES[code]
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.extra = extra

    def of_field(self, name: str) -> Problem:
        """Return the same problem, told of one of the form's fields."""
        detail = f"{name}: {self.detail}"
        return Problem(self.code, detail, retry_after_s=self.retry_after_s, **{**self.extra, "field": name})

    def document(self) -> dict[str, Any]:
        """Return the problem document. ``type`` is absent, which means ``about:blank``; ``code`` is what to act on."""
        title = HTTPStatus(self.status).phrase
        return {"title": title, "status": self.status, "detail": self.detail, "code": self.code, **self.extra}


class Stopped(Exception):
    """The work was told to stop because nobody waits for its result."""
