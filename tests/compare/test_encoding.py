"""Content encodings: every usual one is undone, bombs and damage are told apart, memory is bounded."""

from __future__ import annotations

import gzip
import os
import tracemalloc
import zlib

import brotli
import pytest
import zstandard

from compare.kernels.encoding import CannotDecode, DamagedContent, decode_content
from compare.measurement import OutputClass
from compare.measuring import measure
from compare.policy import Kind
from tests.compare.examples import answer, exchange, policy

TEXT = b"hello world" * 1000
CODED = {
    "gzip": gzip.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
    "GZIP": gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:]) + b"\0" * 9,
    "zstd ": zstandard.compress(TEXT[:500]) + zstandard.compress(TEXT[500:]),
}


@pytest.mark.parametrize("encoding", CODED)
def test_p05_every_encoding_is_undone(encoding: str) -> None:
    assert decode_content(CODED[encoding], encoding, len(TEXT)) == TEXT


@pytest.mark.parametrize("encoding", [name for name in CODED if name != "GZIP"])
def test_p05_a_cut_or_damaged_body_is_named_as_such(encoding: str) -> None:
    for damaged in (CODED[encoding][:-4], b"\x01nonsense"):
        with pytest.raises(DamagedContent):
            decode_content(damaged, encoding, len(TEXT))


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, br"])
def test_a_body_of_no_bytes_stays_one(encoding: str) -> None:
    assert decode_content(b"", encoding, 10) == b""


BOMBS = {
    "gzip": gzip.compress(bytes(30_000_000)),
    "br": brotli.compress(bytes(30_000_000), quality=3),
    "zstd": zstandard.compress(bytes(30_000_000)),
    "gzip, gzip": gzip.compress(gzip.compress(bytes(30_000_000))),
}


@pytest.mark.parametrize("encoding", BOMBS)
def test_a_bomb_is_not_judged_and_takes_little_memory(encoding: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CannotDecode, match="more than 50000 bytes"):
            decode_content(BOMBS[encoding], encoding, 50_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_endless_layers_and_members_are_refused() -> None:
    with pytest.raises(CannotDecode, match="on top of each other"):
        decode_content(b"x", ", ".join(["gzip"] * 20), 1000)
    for name, one in (("gzip", gzip.compress(b"")), ("zstd", zstandard.compress(b""))):
        with pytest.raises(CannotDecode, match="more than 100"):
            decode_content(one * 101, name, 1000)
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=29)).compressobj()
    with pytest.raises(CannotDecode, match="window"):
        decode_content(wide.compress(os.urandom(100)) + wide.flush(), "zstd", 1000)


def test_p05_one_document_in_two_encodings_is_identical() -> None:
    plain, kind = b'{"a": 1}', "application/json"
    for encoding, coded in (("br", brotli.compress(plain)), ("zstd", zstandard.compress(plain))):
        made = exchange(1, answer("cloud", plain, kind), answer("onprem", coded, kind, encoding=encoding))
        assert measure(made, policy(Kind.JSON)).judgement.output_class is OutputClass.IDENTICAL


def test_p10_a_head_is_no_missing_body_whatever_encoding_a_side_names() -> None:
    from dataclasses import replace

    made = exchange(1, answer("cloud", b"", "image/png", encoding="gzip"), answer("onprem", b"", "image/png"))
    head = replace(made, request=replace(made.request, method="HEAD"))
    assert measure(head, policy(Kind.IMAGE)).judgement.output_class is OutputClass.IDENTICAL
    refused = replace(head, shadow=answer("onprem", b"", status=404))
    assert measure(refused, policy(Kind.IMAGE)).judgement.diagnoses[0].code == "status"
    empty = measure(made, policy(Kind.AUTO))
    assert empty.judgement.output_class is OutputClass.IDENTICAL
