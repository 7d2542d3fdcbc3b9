"""What a model is: one request's work in, its result out. The vocabulary between the server and its models.

A model comes in one of two shapes. A maker of *sessions*, where a request has the model's state for itself from the
picture to the result; or a *batch model*, whose network has no state, so that only the tensors of several requests
meet in it, while each is prepared and finished on its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onprem_backend.images import Picture
from onprem_backend.problems import Stopped

if TYPE_CHECKING:
    from onprem_backend.runtime import Network


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One request's work. ``mask`` is ``(H, W) bool``; ``options`` are the checked query options; ``stop`` is set
    when nobody waits any more, and long work looks at it. ``frugal`` asks for less memory at a time, after memory ran
    out."""

    picture: Picture
    mask: NDArray[np.bool_] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    frugal: bool = False

    def check_stop(self) -> None:
        """Raise ``Stopped`` when nobody waits for the result."""
        if self.stop.is_set():
            raise Stopped


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A picture or a JSON document, and headers that describe it. ``unchanged``: the picture is the one that came."""

    picture: Picture | None = None
    document: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    unchanged: bool = False


class Session(Protocol):
    """One session of a model: not reentrant, used by one thread at a time. Blocking. The same job gives the same
    result."""

    def __call__(self, job: Job) -> Result:
        """Do the work. Raises ``Problem`` for what the client has to know, ``Stopped``, or what the model raises."""


MakeSession = Callable[[], Session]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One picture on its way through a batch. ``tensor`` is ``(3, H, W) float32``; ``finish`` makes the result out of
    this picture's own part of the network's outputs, and holds all that it needs of the picture. Blocking. ``second``
    is another tensor that goes the same way; its outputs follow those of the first."""

    tensor: NDArray[np.float32]
    finish: Callable[[Sequence[NDArray[np.float32]]], Result]
    second: NDArray[np.float32] | None = None

    def result(self, outputs: Sequence[NDArray[np.float32]]) -> Result:
        """Finish. Raises ``FloatingPointError`` when an output is not finite: less precision than the network needs, or
        broken weights. Such values would become black pixels, or no face, or no label, and look like a result."""
        if not all(np.isfinite(output).all() for output in outputs):
            raise FloatingPointError("the network's output is not finite")
        return self.finish(outputs)


@dataclass(frozen=True, slots=True, eq=False)
class BatchModel:
    """A network without state, and how a picture comes to it. ``prepare`` is blocking and safe in several threads."""

    network: Network
    prepare: Callable[[Job], Prepared]

    def run(self, job: Job) -> Result:
        """Do one job alone, in the calling thread."""
        prepared = self.prepare(job)
        tensors = [tensor for tensor in (prepared.tensor, prepared.second) if tensor is not None]
        return prepared.result([output[0] for tensor in tensors for output in self.network(tensor[None])])


Model = MakeSession | BatchModel
