"""Ray gives the same measurements as local processes, to the last digit, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_both_engines_measure_the_same_to_the_last_digit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.compare.both_engines", str(tmp_path / "sets")]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip().splitlines()[-1:] == ["26 of 26 the same, 0 files left"], done.stderr[-2000:]
