"""docs/mirror.md names every reason and setting that there is."""

from __future__ import annotations

import re
from pathlib import Path

from crossfade.config.mirroring import MirrorConfig, ShadowConfig
from shadow.exchange import SkipReason

TEXT = Path("docs/mirror.md").read_text()


def test_every_reason_for_a_skip_is_explained_and_no_other() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(SkipReason)


def test_every_setting_that_it_names_exists() -> None:
    named = set(re.findall(r"`(?:shadow|mirror)\.(\w+)`", TEXT)) - {"defects"}
    assert named
    assert named <= MirrorConfig.model_fields.keys() | ShadowConfig.model_fields.keys()
