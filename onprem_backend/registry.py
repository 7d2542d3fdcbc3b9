"""The models of one server: loaded in the background, run through their pools, loaded and unloaded on request.

Theory of operation. Each model is *loading*, then *ready*, *missing* (no weight file) or *unusable* (wrong file, or it
does not load); an operator can make a ready one *unloaded* and load any other one again. One thread loads them one
after the other; the event loop reads and decides. A model that is not ready never holds up another one. A model that is
being unloaded gets no new request, and goes when its last one has been answered. A CUDA context that breaks stays
broken until the process restarts, so that fact is kept, turns liveness off, and is told to ``on_broken``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onprem_backend.catalog import ModelSpec
from onprem_backend.manifest import MANIFEST, ModelFile
from onprem_backend.metrics import Metrics
from onprem_backend.pool import Timed
from onprem_backend.problems import Problem, Stopped
from onprem_backend.sessions import Job, Prepared, Result
from onprem_backend.settings import Settings
from onprem_backend.workers import Reclaimer

if TYPE_CHECKING:
    from onprem_backend.loading import Loaded, Loader
    from onprem_backend.runtime import Runtime

_log = logging.getLogger("onprem_backend")

Finish = Callable[[], Result]
"""Makes the result out of what a run gave. Blocking."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """Where a model stands: ``loading``, ``ready``, ``missing``, ``unusable`` or ``unloaded``, with the reason of the
    last three."""

    spec: ModelSpec
    engine: str
    state: str = "loading"
    reason: str | None = None
    loaded: Loaded | None = None


class Registry:
    """All models of the enabled features. Owner of their pools and of the loading thread; closed with ``aclose``."""

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[ModelSpec],
        *,
        metrics: Metrics,
        manifest: Mapping[str, ModelFile] = MANIFEST,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_broken = on_broken
        self.manifest = manifest
        self.states = {
            spec.name: ModelState(spec, settings.engine if spec.engine == "onnx" else spec.engine)
            for spec in specs
            if spec.feature in settings.features
        }
        self.device = settings.device
        self.broken: str | None = None
        self.failures: Counter[tuple[str, str]] = Counter()
        self._runtime: Runtime | None = None
        self._loader: Loader | None = None
        self._loading: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load-models")
        self._reclaim = Reclaimer()

    @property
    def started(self) -> bool:
        """Whether every model has been tried and warmed up."""
        return all(state.state != "loading" for state in self.states.values())

    @property
    def ready(self) -> bool:
        """Whether requests can be served: started, the device works, and something is there to serve with."""
        return self.started and self.broken is None and any(s.state == "ready" for s in self.states.values())

    async def start(self) -> None:
        """Begin loading in the background. Raises ``RuntimeError`` when the device that was asked for is not there."""
        if self._settings.device not in ("auto", "cpu"):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._prepare)
        self._loading = asyncio.create_task(self._load_all(), name="load-models")

    async def loaded(self) -> None:
        """Wait until every model has been tried."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def aclose(self, deadline_s: float) -> None:
        """Stop lending sessions and wait up to ``deadline_s`` for the loading thread."""
        for state in self.states.values():
            if state.loaded is not None:
                await state.loaded.aclose()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._reclaim.close()
        if self._loading is not None:
            _done, late = await asyncio.wait({self._loading}, timeout=deadline_s)
            for task in late:
                task.cancel()

    def choose(self, feature: str, options: Mapping[str, str]) -> ModelState:
        """Return the preferred ready model for a request.

        Raises ``Problem``: ``feature_disabled``, ``device_broken``, ``starting``, ``model_not_installed``,
        ``model_unloaded`` or ``model_unusable``.
        """
        if feature not in self._settings.features:
            raise Problem("feature_disabled", f"{feature} is switched off on this server")
        if self.broken is not None:
            raise Problem("device_broken", "the device has failed; this process has to be restarted", retry_after_s=30)
        states = [state for state in self.states.values() if state.spec.serves(feature, options)]
        found = {state.state for state in states}
        if "loading" in found:
            raise Problem("starting", "the model is being loaded", retry_after_s=1)
        if "ready" in found:
            return next(state for state in states if state.state == "ready")
        code = "model_not_installed"
        if found & {"unusable", "unloaded"}:
            code = "model_unusable" if "unusable" in found else "model_unloaded"
        raise Problem(code, "; ".join(f"{state.spec.name}: {state.reason}" for state in states))

    def prepare(self, state: ModelState, loaded: Loaded, job: Job) -> Job | Prepared:
        """Do what comes before a session's turn. Blocking, in a codec thread. Raises ``Problem``."""
        if loaded.batch is None:
            return job
        with self._translated(state, loaded):
            return loaded.batch.prepare(job)

    async def run(self, state: ModelState, loaded: Loaded, work: Job | Prepared) -> Timed[Finish]:
        """Run prepared work on a session. Raises ``Problem``; what a model raises is logged, counted and translated.
        A frugal model whose memory runs out is tried once more with less."""
        try:
            with self._translated(state, loaded):
                return await self._run(state, loaded, work)
        except Problem as problem:
            if problem.code != "out_of_memory":
                raise
            without_frames = Problem(problem.code, problem.detail, retry_after_s=problem.retry_after_s)
        await self._reclaim()
        raise without_frames

    async def _run(self, state: ModelState, loaded: Loaded, work: Job | Prepared) -> Timed[Finish]:
        if isinstance(work, Job):
            done = await self._run_session(state, loaded, work)
            result = done.value
            return Timed(lambda: result, done.queue_s, done.run_s)
        assert loaded.batcher is not None
        timed = await loaded.batcher.run(work.tensor)
        if work.second is not None:
            more = await loaded.batcher.run(work.second)
            both = [*timed.value, *more.value]
            timed = Timed(both, timed.queue_s + more.queue_s, timed.run_s + more.run_s)
        finish = partial(work.result, timed.value)
        return Timed(lambda: self._finish(state, loaded, finish), timed.queue_s, timed.run_s)

    async def _run_session(self, state: ModelState, loaded: Loaded, job: Job) -> Timed[Result]:
        from onprem_backend.failures import is_out_of_memory

        try:
            return await loaded.pool.run(lambda session, stop: session(replace(job, stop=stop)))
        except Exception as error:  # only to tell out of memory from the rest, which goes on
            if not (state.spec.frugal and is_out_of_memory(error)):
                raise
            _log.warning("%s: out of memory, trying once more with less: %s", loaded.label, error)
        await self._reclaim()
        self._metrics.retries.labels(state.spec.name, "out_of_memory").inc()
        return await loaded.pool.run(lambda session, stop: session(replace(job, stop=stop, frugal=True)))

    def _finish(self, state: ModelState, loaded: Loaded, finish: Finish) -> Result:
        with self._translated(state, loaded):
            return finish()

    @contextmanager
    def _translated(self, state: ModelState, loaded: Loaded) -> Iterator[None]:
        try:
            yield
        except Problem as problem:
            self.failures[state.spec.name, problem.code] += 1
            raise
        except Exception as error:  # the boundary of a model's work
            translated = self._translate(loaded.label, error)
            self.failures[state.spec.name, translated.code] += 1
            raise translated from None

    def _translate(self, label: str, error: Exception) -> Problem:
        from onprem_backend.failures import is_device_failure, is_out_of_memory

        if is_out_of_memory(error):
            _log.error("%s: out of memory: %s", label, error)
            return Problem("out_of_memory", f"{label} ran out of memory", retry_after_s=5)
        if is_device_failure(error):
            if self.broken is None:
                self.broken = str(error)
                _log.critical("%s: the device has failed, restart this process: %s", label, error)
                self._on_broken()
            return Problem("device_broken", "the device has failed; this process has to be restarted", retry_after_s=30)
        if isinstance(error, Stopped):
            return Problem("inference_timeout", f"{label} was stopped", retry_after_s=10)
        _log.error("%s: inference failed", label, exc_info=error)
        return Problem("inference_failed", f"{label} failed: {type(error).__name__}")

    async def load(self, name: str) -> ModelState:
        """Load a model that is not ready, on an operator's request; a ready one stays as it is.

        Raises ``Problem``: ``unknown_model``, ``starting`` or ``device_broken``.
        """
        self._known(name)
        async with self._changing:
            if not self.started:
                raise Problem("starting", "the models are being loaded", retry_after_s=1)
            if self.broken is not None:
                raise Problem("device_broken", "the device has failed; this process has to be restarted")
            if self.states[name].state != "ready":
                self.states[name] = replace(self.states[name], state="loading", reason=None)
                await self._load(name)
            return self.states[name]

    async def unload(self, name: str, deadline_s: float) -> ModelState:
        """Let a model go: no new request gets it, and it goes when the last one is answered or ``deadline_s`` is over.
        Raises ``Problem("unknown_model")`` or ``Problem("starting")``."""
        self._known(name)
        async with self._changing:
            state = self.states[name]
            if state.state == "loading":
                raise Problem("starting", "the models are being loaded", retry_after_s=1)
            loaded = state.loaded
            self.states[name] = replace(state, state="unloaded", reason="unloaded by an operator", loaded=None)
            if loaded is not None:
                try:
                    async with asyncio.timeout(deadline_s):
                        await loaded.pictures.drained()
                except TimeoutError:
                    _log.warning("%s: still busy after %g s, unloaded all the same", loaded.label, deadline_s)
                await loaded.aclose()
                del loaded, state
                await self._reclaim()
            return self.states[name]

    def _known(self, name: str) -> None:
        if name not in self.states:
            raise Problem("unknown_model", f"there is no model {name!r} here", known=list(self.states))

    async def _load_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._prepare)
        except Exception as error:  # the boundary of the loading task: the server stays up and says why
            _log.exception("no model can be loaded")
            for name, state in self.states.items():
                self.states[name] = replace(state, state="unusable", reason=str(error))
            return
        for name in self.states:
            await self._load(name)

    async def _load(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.states[name] = await loop.run_in_executor(self._thread, self._load_model, self.states[name])

    def _prepare(self) -> None:
        from onprem_backend.loading import Loader, prepare_runtime

        if self._runtime is None:
            self._runtime = prepare_runtime(self._settings)
            self.device = str(self._runtime.device)
            self._loader = Loader(self._settings, self.manifest, self._metrics, self._reclaim)

    def _load_model(self, state: ModelState) -> ModelState:
        from onprem_backend.loading import Unavailable

        assert self._loader is not None
        assert self._runtime is not None
        try:
            loaded = self._loader.load(state.spec, state.engine, self._runtime)
        except Unavailable as error:
            return replace(state, state=error.state, reason=str(error))
        except Exception as error:  # the boundary of one model's loading: the others go on
            _log.exception("%s does not load", state.spec.name)
            return replace(state, state="unusable", reason=f"{type(error).__name__}: {error}")
        return replace(state, state="ready", reason=None, loaded=loaded)
