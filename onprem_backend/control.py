"""The endpoints for whoever runs the server: health in the KServe V2 form, the models, metrics, load and unload."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Iterator

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onprem_backend.forms import ByteBudget
from onprem_backend.metrics import Gauge, Metrics
from onprem_backend.problems import Problem
from onprem_backend.registry import ModelState, Registry
from onprem_backend.settings import Settings


class Control:
    """Says how the server is, and changes which models it holds."""

    def __init__(self, settings: Settings, registry: Registry, metrics: Metrics, budget: ByteBudget) -> None:
        self._settings = settings
        self._registry = registry
        self._metrics = metrics
        self._budget = budget
        metrics.observe_now(self._gauges)

    async def live(self, request: Request) -> Response:
        """Say whether this process can still do its work; if not, it has to be restarted."""
        broken = self._registry.broken
        return JSONResponse({"live": broken is None, "reason": broken}, 200 if broken is None else 503)

    async def ready(self, request: Request) -> Response:
        """Say whether all models were tried and warmed up, and where each stands."""
        states = {name: state.state for name, state in self._registry.states.items()}
        ready = self._registry.ready
        return JSONResponse({"ready": ready, "models": states}, 200 if ready else 503)

    async def model_ready(self, request: Request) -> Response:
        """Say whether one model can serve."""
        name = request.path_params["name"]
        state = self._registry.states.get(name)
        if state is None:
            raise Problem("unknown_model", f"there is no model {name!r} here", known=list(self._registry.states))
        ready = state.state == "ready" and self._registry.broken is None
        body = {"name": name, "ready": ready, "state": state.state, "reason": self._registry.broken or state.reason}
        return JSONResponse(body, 200 if ready else 503)

    async def models(self, request: Request) -> Response:
        """List the models with their files, state and counts."""
        return JSONResponse({"models": [self._describe(state) for state in self._registry.states.values()]})

    async def load(self, request: Request) -> Response:
        """Load a model; answer when it is ready, or with the reason why it is not."""
        self._authorise(request)
        return self._changed(await self._registry.load(request.path_params["name"]))

    async def unload(self, request: Request) -> Response:
        """Unload a model; answer when its last request is answered and its memory is given back."""
        self._authorise(request)
        deadline_s = self._settings.inference_timeout_s
        return self._changed(await self._registry.unload(request.path_params["name"], deadline_s))

    async def metrics(self, request: Request) -> Response:
        """Give all metrics in the form that the scraper asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._metrics.registry), headers={"Content-Type": content_type})

    def _authorise(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = self._settings.admin_token
        known = token and scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
        if not known:
            raise Problem("unauthorized", "this needs the server's admin token as a bearer token")

    def _changed(self, state: ModelState) -> Response:
        failed = state.state in ("missing", "unusable")
        body = {"name": state.spec.name, "state": state.state, "reason": state.reason}
        return JSONResponse(body, 503 if failed else 200)

    def _describe(self, state: ModelState) -> dict[str, object]:
        loaded = state.loaded
        manifest = self._registry.manifest
        failures = self._registry.failures
        return {
            "name": state.spec.name,
            "feature": state.spec.feature,
            "files": [{"file": manifest[n].file, "sha256": manifest[n].sha256} for n in state.spec.weights],
            "device": self._registry.device,
            "engine": state.engine,
            "precision": loaded and loaded.precision,
            "max_batch": loaded and (loaded.batcher.max_batch if loaded.batcher else 1),
            "state": state.state,
            "loaded": loaded is not None,
            "reason": state.reason,
            "label": loaded and loaded.label,
            "load_s": loaded and round(loaded.load_s, 3),
            "memory_bytes": loaded and loaded.memory_bytes,
            "sessions": loaded and {"size": loaded.pool.size, "idle": loaded.pool.idle, "waiting": loaded.pool.waiting},
            "failures": {code: count for (name, code), count in failures.items() if name == state.spec.name},
        }

    def _gauges(self) -> Iterator[Gauge]:
        yield "onprem_upload_bytes", "Bytes that uploads hold now.", {}, self._budget.held_bytes
        yield "onprem_device_broken", "1 when the process has to be restarted.", {}, self._registry.broken is not None
        for name, value in device_memory().items():
            yield "onprem_device_memory_bytes", "Memory of the CUDA device that torch holds.", {"kind": name}, value
        for name, state in self._registry.states.items():
            labels = {"model": name}
            loaded = state.loaded
            yield "onprem_model_ready", "1 when the model can serve.", labels, state.state == "ready"
            if loaded is not None:
                size, idle = loaded.pool.size, loaded.pool.idle
                yield "onprem_sessions", "Sessions of the model.", labels, size
                yield "onprem_sessions_in_use", "Sessions that compute now.", labels, size - idle
                yield "onprem_pictures_held", "Pictures between decoding and encoding.", labels, loaded.pictures.held
                yield "onprem_pictures_waiting", "Requests that wait for a place.", labels, loaded.pictures.waiting
                yield "onprem_model_memory_bytes", "What loading the model took.", labels, loaded.memory_bytes
                yield "onprem_model_load_seconds", "How long loading took.", labels, loaded.load_s


def device_memory() -> dict[str, float]:
    """Return what torch holds on the CUDA device: ``allocated`` in use, ``reserved`` with its cache. Empty on a CPU."""

    torch = sys.modules.get("torch")  # before the models are loaded there is nothing to tell
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
