"""Keep what was already sent of a request's body, so that another backend can be given it from the start.

States: *keeping*, everything that was taken is held and reserved in the budget; *lost*, it did not fit, or nobody wants
it any more: nothing is held. A body that nobody will need again is never kept.
"""

from __future__ import annotations

from shadow.tee import ByteBudget, keep_piece


class Replay:
    """The chunks taken so far (``keep_piece``). With no budget nothing is kept and only an untouched body is whole."""

    def __init__(self, budget: ByteBudget | None) -> None:
        self.is_whole = True
        self._budget = budget
        self._chunks: list[bytes] = []
        self._held_bytes = 0

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """What can be sent again."""
        return tuple(self._chunks)

    def keep(self, chunk: bytes) -> None:
        """Take note of a chunk that is about to be sent."""
        if not self.is_whole:
            return
        if self._budget is not None and self._budget.try_reserve(len(chunk)):
            self._held_bytes += len(chunk)
            keep_piece(self._chunks, chunk)
        else:
            self.drop()
            self.is_whole = False

    def drop(self) -> None:
        """Let go of everything; what was taken from now on is lost for another attempt."""
        if self._chunks:
            self.is_whole = False
            self._chunks = []
        if self._budget is not None:
            self._budget.release(self._held_bytes)
            self._budget, self._held_bytes = None, 0
