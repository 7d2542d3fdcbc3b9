"""Albums: many pictures in one request, from a multipart form or a zip, to items that are read when their turn comes.

A zip (APPNOTE 4.3) is read entry by entry: an entry that announces more than a picture may have is refused unread, one
that holds more than it announces is damaged, and nothing is ever written under an entry's name. A name that would lead
out of a folder condemns the whole album, since clients write results under these names.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from onprem_backend.forms import Part, is_form, parse_form
from onprem_backend.problems import Problem

_ZIP_START = b"PK\x03\x04"
_MASK_FOLDER = "masks/"
_SPARE_FIELDS = 2
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_UNSAFE = re.compile(r"^[/\\]|^[A-Za-z]:|[\x00-\x1f\x7f]|\\")

Read = Callable[[], bytes]
"""Gives one file's bytes. Blocking. Raises ``Problem``."""


@dataclass(frozen=True, slots=True)
class AlbumLimits:
    """What an album may be at most."""

    max_pictures: int
    max_picture_bytes: int
    max_unpacked_bytes: int


@dataclass(frozen=True, slots=True)
class Item:
    """One picture of an album. ``name`` is the client's own. ``size_bytes`` is what ``read`` will bring at most."""

    name: str
    size_bytes: int
    read: Read
    mask: Read | None = None


def open_album(content_type: str, body: bytes, limits: AlbumLimits, *, with_masks: bool) -> list[Item]:
    """Return the pictures of an album in their order, without reading them. Blocking.

    A zip is known by its content. ``with_masks``: in a form the fields ``mask`` belong to the fields ``file`` in
    their order, or one to all; in a zip ``masks/NAME`` belongs to ``NAME``. Raises ``Problem`` with code
    ``album_required``, ``malformed_form``, ``malformed_zip``, ``unsafe_name``, ``too_many_pictures``,
    ``body_too_large``, ``missing_field`` or ``not_a_file``.
    """
    if body[:4] == _ZIP_START:
        return _from_zip(body, limits, with_masks=with_masks)
    if not is_form(content_type):
        raise Problem("album_required", "an album is multipart/form-data with several fields file, or a zip")
    most = limits.max_pictures * (2 if with_masks else 1)
    return _from_form(parse_form(content_type, body, max_parts=most + _SPARE_FIELDS), limits, with_masks=with_masks)


def _from_form(parts: Sequence[Part], limits: AlbumLimits, *, with_masks: bool) -> list[Item]:
    files = [part for part in parts if part.name in ("file", "image")]
    for part in files:
        if not part.is_file:
            raise Problem("not_a_file", f"a field {part.name} is text, not a file", field=part.name)
    _check_count(len(files), limits)
    masks: list[Part | None] = [None] * len(files)
    if with_masks:
        found = [part for part in parts if part.name == "mask"]
        if len(found) not in (1, len(files)):
            raise Problem("missing_field", f"{len(files)} pictures, but {len(found)} fields mask", field="mask")
        masks = [*(found * len(files) if len(found) == 1 else found)]
    reads = [None if mask is None else partial(bytes, mask.content) for mask in masks]
    return [
        Item(part.filename, len(part.content), partial(bytes, part.content), read_mask)
        for part, read_mask in zip(files, reads, strict=True)
    ]


def _from_zip(body: bytes, limits: AlbumLimits, *, with_masks: bool) -> list[Item]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(body))
    except _DAMAGE as error:
        raise Problem("malformed_zip", f"the zip cannot be read: {error}") from None
    entries = [entry for entry in archive.infolist() if not entry.is_dir() and not _is_litter(entry.filename)]
    for entry in entries:
        _check_name(entry.filename)
    masks = {entry.filename: entry for entry in entries if with_masks and entry.filename.startswith(_MASK_FOLDER)}
    pictures = [entry for entry in entries if entry.filename not in masks]
    _check_count(len(pictures), limits)
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.max_unpacked_bytes:
        detail = f"the zip unpacks to {unpacked} bytes, at most {limits.max_unpacked_bytes} are accepted"
        raise Problem("body_too_large", detail, max_bytes=limits.max_unpacked_bytes)
    return [_zip_item(archive, entry, masks, limits, with_masks=with_masks) for entry in pictures]


def _zip_item(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    masks: dict[str, zipfile.ZipInfo],
    limits: AlbumLimits,
    *,
    with_masks: bool,
) -> Item:
    read = partial(_read_entry, archive, entry, limits.max_picture_bytes)
    size_bytes = min(entry.file_size, limits.max_picture_bytes)
    if not with_masks:
        return Item(entry.filename, size_bytes, read)
    mask = masks.get(_MASK_FOLDER + entry.filename)
    if mask is None:
        return Item(entry.filename, size_bytes, read, partial(_no_mask, entry.filename))
    return Item(entry.filename, size_bytes, read, partial(_read_entry, archive, mask, limits.max_picture_bytes))


def _no_mask(name: str) -> bytes:
    raise Problem("missing_field", f"the zip has no {_MASK_FOLDER}{name}", field="mask")


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Unpack one entry. zipfile stops at the announced size and checks the CRC."""
    if entry.file_size > max_bytes:
        raise Problem("body_too_large", f"a picture of at most {max_bytes} bytes is accepted", max_bytes=max_bytes)
    try:
        return archive.read(entry)
    except _DAMAGE as error:
        raise Problem("damaged_image", f"this entry of the zip cannot be unpacked: {error}") from None


def _check_count(count: int, limits: AlbumLimits) -> None:
    if count == 0:
        raise Problem("missing_field", "the album has no pictures", field="file")
    if count > limits.max_pictures:
        detail = f"{count} pictures, at most {limits.max_pictures} are accepted"
        raise Problem("too_many_pictures", detail, max_pictures=limits.max_pictures)


def _check_name(name: str) -> None:
    if _UNSAFE.search(name) or ".." in name.split("/"):
        raise Problem("unsafe_name", "a name in the zip leads out of its folder; nothing of it was read")


def _is_litter(name: str) -> bool:
    """Tell what file managers put beside the pictures."""
    last = name.rpartition("/")[2]
    return name.startswith("__MACOSX/") or last in (".DS_Store", "Thumbs.db", "desktop.ini")
