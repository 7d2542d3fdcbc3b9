"""Weight files that tests write themselves, pinned in manifests of their own: the check is never bypassed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onprem_backend.manifest import MANIFEST, ModelFile, file_sha256


def pin(folder: Path, *names: str) -> dict[str, ModelFile]:
    """Return the manifest with the hashes of the files that lie in ``folder`` under these entries' file names."""
    pinned = {name: replace(MANIFEST[name], sha256=file_sha256(folder / MANIFEST[name].file)) for name in names}
    return {**MANIFEST, **pinned}


def write_state(folder: Path, name: str, state: Any) -> None:
    """Save what ``torch.load`` with weights_only accepts as the file of an entry."""
    torch.save(state, folder / MANIFEST[name].file)
