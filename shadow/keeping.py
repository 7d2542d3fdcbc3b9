"""What a route lets the store keep of its bodies, as frozen values, and the pure decisions that follow from it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class Kept(StrEnum):
    """What became of the bodies of an exchange: the column ``bodies``.

    ``SHARED``: large ones are one object for each content and day. ``OWN``: they are objects of this exchange alone, so
    that they can be dropped without a look at any other. ``NONE``: by policy only digests were kept. ``DROPPED``: they
    were deleted when the pair was judged a match. ``EXPIRED``: their day's key was destroyed. ``PLAIN``: they are of
    version 1 and wait to be encrypted (``shadow/store/adoption.py``). A name that only another version knows reads as
    ``NONE``.
    """

    SHARED = "shared"
    OWN = "own"
    NONE = "none"
    DROPPED = "dropped"
    EXPIRED = "expired"
    PLAIN = "plain"

    @classmethod
    def _missing_(cls, value: object) -> Kept:
        return cls.NONE

    @property
    def readable(self) -> bool:
        """Whether bytes may still be there."""
        return self in (Kept.SHARED, Kept.OWN)


class Bodies(StrEnum):
    """Which bodies are kept, besides their digests, sizes and all other numbers.

    ``ALL``: every one. ``MISMATCHES``: until the pair is judged; then those of matches go, but for a sample.
    ``HASHES``: none; equality can still be told, pictures cannot be compared and nothing can be replayed.
    """

    ALL = "all"
    MISMATCHES = "mismatches"
    HASHES = "hashes"


@dataclass(frozen=True, slots=True)
class KeepRule:
    """What is kept of one route. ``matches_percent`` (0 to 100) is the sample of matches whose bodies stay under
    ``MISMATCHES``; ``redact_json`` are paths such as ``user.email`` or ``items[*].name`` whose values are replaced in
    JSON bodies before anything is written, ``redact_form`` the fields of forms, files among them, whose values are."""

    bodies: Bodies = Bodies.ALL
    matches_percent: float = 1.0
    redact_json: tuple[str, ...] = ()
    redact_form: tuple[str, ...] = ()

    @property
    def kept(self) -> Kept:
        """How an exchange under this rule is stored at first. Bodies that are redacted are the exchange's own: the same
        content may be kept by another route that redacts something else, or nothing."""
        if self.bodies is Bodies.HASHES:
            return Kept.NONE
        is_own = self.bodies is Bodies.MISMATCHES or self.redact_json or self.redact_form
        return Kept.OWN if is_own else Kept.SHARED


def keeps_match(rule: KeepRule, exchange_id: str) -> bool:
    """Say whether the bodies of this match stay. Decided by the hash of the id, so that it is always the same ones."""
    if rule.bodies is not Bodies.MISMATCHES:
        return True
    share = int.from_bytes(hashlib.sha256(f"keep {exchange_id}".encode()).digest()[:8]) / 2**64
    return share * 100 < rule.matches_percent
