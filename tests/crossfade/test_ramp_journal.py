"""The journal of moves back keeps every move, whatever stands before it and whoever made it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.phrases import Phrase, say
from compare.ramp import Phase
from compare.rampbook import Move
from crossfade.ramp_journal import RampJournal
from tests.compare.examples import START

NAMES = st.text(st.sampled_from('ab\x85\u2028\x0c\ud800"\n'), max_size=6)


@given(NAMES)
def test_a_move_is_kept_after_a_line_that_broke_off(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    path.write_text('{"route": "r", "at')
    journal, move = RampJournal(path), Move("r", START, Phase.ABORTED, 5, 0, name, say("paused by {name}", name=name))
    journal.note(move)
    assert journal.pending() == [move]
    found = journal.pending()[0].reason
    assert isinstance(found, Phrase)
    assert found.values == {"name": name}  # so that it can be told in another language
    journal.drop([])
    assert journal.pending() == [move]
    journal.drop([move])
    assert journal.pending() == []
