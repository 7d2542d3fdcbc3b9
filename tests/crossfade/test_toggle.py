"""The toggle's writer: only the value changes, nothing is lost, nothing half-written is ever seen."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.config.loading import ConfigError, load_config
from crossfade.config.toggle import parse_split, write_toggle
from tests.crossfade.test_config import GOOD

PAIR = ("cloud", "onprem")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "crossfade.yaml"
    file.write_text("# ours\n" + GOOD + "audit: audit.jsonl  # kept\n")
    return file


def active(path: Path) -> dict[str, int]:
    return dict(load_config(path, secrets=False).routes[0].split)


def test_only_the_value_changes(path: Path) -> None:
    before = path.read_text()
    change = write_toggle(path, "remove-background", ["onprem=5"], who="ada", now=NOW)
    assert (dict(change.before), dict(change.after)) == ({"cloud": 100}, {"cloud": 95, "onprem": 5})
    assert path.read_text() == before.replace("active: cloud", "active: {cloud: 95, onprem: 5}")
    write_toggle(path, "remove-background", ["cloud"], who="ada", now=NOW)
    assert path.read_text() == before


def test_every_change_leaves_a_line_with_who_and_when(path: Path) -> None:
    write_toggle(path, "remove-background", ["onprem"], who="ada", now=NOW)
    write_toggle(path, "remove-background", ["cloud"], who="bob", now=NOW)
    lines = [json.loads(line) for line in (path.parent / "audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["before"], line["after"]) for line in lines] == [
        ("ada", {"cloud": 100}, {"onprem": 100}),
        ("bob", {"onprem": 100}, {"cloud": 100}),
    ]
    assert lines[0]["at"] == "2026-01-02T03:04:05.000+00:00"


def test_a_block_mapping_with_comments_can_be_toggled(path: Path) -> None:
    block = "active:\n      cloud: 95  # most\n      onprem: 5  # some\n"
    path.write_text(path.read_text().replace("active: cloud                        #", block + "    #"))
    before = path.read_text()
    write_toggle(path, "remove-background", ["onprem=50"], who="ada", now=NOW)
    assert active(path) == {"cloud": 50, "onprem": 50}
    assert path.read_text() == before.replace("cloud: 95  #", "cloud: 50  #").replace("onprem: 5  #", "onprem: 50  #")
    write_toggle(path, "remove-background", ["onprem"], who="ada", now=NOW)
    assert active(path) == {"onprem": 100}


def test_line_ends_stay_as_they_were(path: Path) -> None:
    windows = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(windows)
    write_toggle(path, "remove-background", ["onprem"], who="ada", now=NOW)
    assert path.read_bytes() == windows.replace(b"active: cloud", b"active: onprem")


def test_a_merge_key_is_refused_with_a_sentence(path: Path) -> None:
    text = path.read_text().replace("    active: cloud ", "    <<: *serving\n    # ")
    path.write_text("x-serving: &serving {active: cloud}\n" + text)
    before = path.read_text()
    with pytest.raises(ValueError, match=r"unknown key|set it by hand"):
        write_toggle(path, "remove-background", ["onprem"], who="ada", now=NOW)
    assert path.read_text() == before


@pytest.mark.parametrize("value", ["cloud", "{cloud: 95, onprem: 5}", "\n      cloud: 95\n      onprem: 5"])
@pytest.mark.parametrize("route", ["remove-background", "upscale"])
def test_a_toggle_that_two_routes_share_moves_neither(path: Path, value: str, route: str) -> None:
    other = (
        "  - name: upscale\n    match: {path: /v1/upscale}\n    baseline: cloud\n    candidate: onprem\n"
        "    active: *both\nlimits: {"
    )
    shared = path.read_text().replace("active: cloud  ", f"active: &both {value}  ").replace("limits: {", other)
    path.write_text(shared)
    with pytest.raises(ConfigError, match=f"active of {route} is written in a way that cannot be edited"):
        write_toggle(path, route, ["onprem=7"], who="ada", now=NOW)
    assert path.read_text() == shared
    assert not (path.parent / "audit.jsonl").exists()


def test_a_toggle_with_an_anchor_that_nobody_shares_can_be_edited(path: Path) -> None:
    path.write_text(path.read_text().replace("active: cloud  ", "active: &mine {cloud: 95, onprem: 5}  "))
    write_toggle(path, "remove-background", ["onprem=7"], who="ada", now=NOW)
    assert active(path) == {"cloud": 93, "onprem": 7}


@pytest.mark.parametrize(
    ("route", "words", "said"),
    [
        ("remove-backgrund", ["cloud"], "there is no route remove-backgrund; the config has remove-background"),
        ("remove-background", ["mars"], "mars is no backend of this route; it has cloud and onprem"),
        ("remove-background", ["cloud=60", "onprem=50"], "must sum to 100, not 110"),
        ("remove-background", ["onprem=120"], "at most 100"),
        ("remove-background", ["onprem=-5"], "no whole percent"),
        ("remove-background", ["onprem=5", "onprem=6"], "named twice"),
        ("remove-background", ["onprem", "cloud=5"], "give every backend a percent"),
    ],
)
def test_a_bad_toggle_changes_nothing_and_says_why(path: Path, route: str, words: list[str], said: str) -> None:
    before = path.read_text()
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        write_toggle(path, route, words, who="ada", now=NOW)
    assert path.read_text() == before
    assert not (path.parent / "audit.jsonl").exists()


def test_a_broken_file_is_not_touched(path: Path) -> None:
    path.write_text("routes: [")
    with pytest.raises(ConfigError):
        write_toggle(path, "remove-background", ["cloud"], who="ada", now=NOW)
    assert path.read_text() == "routes: ["


def test_what_cannot_be_recorded_is_not_changed(path: Path) -> None:
    before = path.read_text().replace("audit: audit.jsonl", "audit: crossfade.yaml/audit.jsonl")
    path.write_text(before)
    with pytest.raises(ConfigError, match="nothing was changed"):
        write_toggle(path, "remove-background", ["onprem"], who="ada", now=NOW)
    assert path.read_text() == before


def test_a_link_stays_a_link_and_the_mode_is_kept(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    write_toggle(link, "remove-background", ["onprem"], who="ada", now=NOW)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert active(path) == {"onprem": 100}


def test_a_reader_never_sees_half_a_file_while_many_write(path: Path) -> None:
    done = threading.Event()
    seen: list[dict[str, int]] = []

    def read() -> None:
        while not done.is_set():
            seen.append(active(path))

    def write(words: list[str]) -> None:
        for _ in range(10):
            write_toggle(path, "remove-background", words, who="ada", now=NOW)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=([f"onprem={percent}"],)) for percent in (1, 50, 99)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert {tuple(split.values()) for split in seen} <= {(100,), (99, 1), (50, 50), (1, 99)}
    assert len((path.parent / "audit.jsonl").read_text().splitlines()) == 30


@given(st.integers(0, 100), st.booleans())
def test_any_percent_of_either_backend_gives_a_whole_split(percent: int, first: bool) -> None:
    split = parse_split([f"{PAIR[0] if first else PAIR[1]}={percent}"], PAIR)
    assert sum(split.values()) == 100
    assert all(split.values())
    assert split.get(PAIR[0] if first else PAIR[1], 0) == percent
