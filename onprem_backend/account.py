"""What one picture's way through the server took, kept once and told to its three listeners: the answer's
``Server-Timing``, the metrics, and the trace."""

from __future__ import annotations

import time
from collections.abc import Mapping

from onprem_backend.metrics import Metrics
from onprem_backend.tracing import Step, Trace, Tracer

TIMED = ("queue", "decode", "inference", "encode")


class Account:
    """The steps of one picture, in the order they end. ``queue`` may occur twice: for a place, and for a session."""

    def __init__(self, feature: str) -> None:
        self.feature = feature
        self.model = ""
        self._steps: list[Step] = []
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._since_ns = time.perf_counter_ns()

    def done(self, name: str, *, waited_s: float | None = None) -> None:
        """End a step that began where the one before ended. ``waited_s``: it began with a wait that long, a ``queue``
        step of its own."""
        now_ns = time.perf_counter_ns()
        if waited_s is not None:
            began_ns = min(now_ns, self._since_ns + round(waited_s * 1e9))
            self._steps.append(self._step("queue", self._since_ns, began_ns))
            self._since_ns = began_ns
        self._steps.append(self._step(name, self._since_ns, now_ns))
        self._since_ns = now_ns

    def _step(self, name: str, began_ns: int, ended_ns: int) -> Step:
        return Step(name, began_ns + self._offset_ns, ended_ns + self._offset_ns)

    def duration_s(self, name: str) -> float:
        """Return how long all steps of this name took."""
        return sum(step.ended_ns - step.began_ns for step in self._steps if step.name == name) / 1e9

    def server_timing(self) -> str:
        """Return the value of ``Server-Timing``, in milliseconds."""
        return ", ".join(f"{name};dur={self.duration_s(name) * 1000:.1f}" for name in TIMED)

    def report(self, code: str, metrics: Metrics, tracer: Tracer, headers: Mapping[str, str]) -> None:
        """Tell metrics and tracer. ``code`` is ``ok`` or the problem's."""
        metrics.requests.labels(self.feature, self.model, code).inc()
        for name, histogram in (
            ("queue", metrics.queue),
            ("decode", metrics.decode),
            ("inference", metrics.inference),
            ("encode", metrics.encode),
        ):
            if any(step.name == name for step in self._steps):
                histogram.labels(self.model).observe(self.duration_s(name))
        if not self._steps:
            self.done("refused")
        attributes = {"onprem.feature": self.feature, "onprem.model": self.model}
        tracer(Trace(f"onprem {self.feature}", headers, code, self._steps, attributes))
