"""ncnn weight files into torch networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

_HALF_PRECISION = 0x01306B47
_SINGLE_PRECISION = 0


def load_ncnn_weights(path: Path, network: torch.nn.Module) -> None:
    """Fill a network's convolutions and PReLUs, in the order they were defined, from an ncnn ``.bin`` file.

    The file holds bare numbers in the order of its ``.param`` layers. A convolution is a 4-byte flag (0x01306B47:
    half precision, 0: single), its weights padded to 4 bytes, then its bias in single precision; a PReLU is its
    slopes in single precision. Strict: raises ``ValueError`` for any other flag, and when the file is not exactly as
    long as the network.
    """
    reader = _Reader(path.read_bytes())
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d):
                reader.fill(module.weight, reader.weights(module.weight.numel()))
                if module.bias is not None:
                    reader.fill(module.bias, reader.singles(module.bias.numel()))
            elif isinstance(module, torch.nn.PReLU):
                reader.fill(module.weight, reader.singles(module.weight.numel()))
    reader.finish()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size_bytes: int) -> bytes:
        piece = self._data[self._position : self._position + size_bytes]
        if len(piece) < size_bytes:
            raise ValueError("the weight file is shorter than the network")
        self._position += size_bytes
        return piece

    def singles(self, count: int) -> NDArray[np.float32]:
        return np.frombuffer(self._take(4 * count), dtype="<f4").astype(np.float32)

    def weights(self, count: int) -> NDArray[np.float32]:
        flag = int.from_bytes(self._take(4), "little")
        if flag == _SINGLE_PRECISION:
            return self.singles(count)
        if flag != _HALF_PRECISION:
            raise ValueError(f"unknown weight flag {flag:#010x}")
        values = np.frombuffer(self._take(2 * count), dtype="<f2").astype(np.float32)
        self._take(-self._position % 4)
        return values

    def fill(self, parameter: torch.Tensor, values: NDArray[np.float32]) -> None:
        parameter.copy_(torch.from_numpy(values).view_as(parameter))

    def finish(self) -> None:
        if self._position != len(self._data):
            raise ValueError("the weight file is longer than the network")
