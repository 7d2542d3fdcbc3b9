"""The model server on Ray Serve (extra ``ray``), for a cluster of GPU machines: the same application in each replica.

    serve run onprem_backend.ray_app:build ONPREM_POOL_SIZE=1

``build`` takes the variables of the environment that the plain server reads; how many replicas there are, what part of
a GPU each one gets and how they scale is Ray's own configuration of the deployment ``onprem`` (``num_replicas`` or
``autoscaling_config``, ``ray_actor_options``, ``max_ongoing_requests``), as in deploy/kubernetes/ray.

Theory of operation. Ray's proxy hands each request to one replica, a process with an application of its own. A replica
counts as started when its models are loaded, so that scaling up never answers ``starting``, and as unhealthy when its
device is lost, which makes Ray replace it. Ray's own refusals are no problem documents; none is to be expected, since a
replica admits more requests than its own queues do and refuses the rest itself, with a Retry-After.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

import ray
from ray import serve
from starlette.applications import Starlette

from onprem_backend.app import create_app
from onprem_backend.registry import Registry
from onprem_backend.settings import SWITCHES, VARIABLES, Settings, settings_from_environment
from onprem_backend.tracing import tracer_from_environment

_LARGEST_BATCH = 32
_SPARE_REQUESTS = 32
"""For health, metrics and refusals beside the pictures."""
_HEALTH_PERIOD_S = 5.0
_SHUTDOWN_S = 30.0


@serve.ingress()
class Replica:
    """One process that serves, made by Ray."""

    def __init__(self, settings: Settings) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._settings = replace(settings, device=device_for(settings.device, gpus))
        self._registry: Registry | None = None

    def __serve_build_asgi_app__(self) -> Starlette:
        """Build the application. Ray calls this after the constructor, then starts its lifespan."""
        tracer = tracer_from_environment(os.environ, self._settings.server_name)
        app = create_app(self._settings, tracer=tracer, load_first=True)
        self._registry = app.state.registry
        return app

    async def check_health(self) -> None:
        """Raise ``RuntimeError`` when this process cannot serve and has to be replaced."""
        registry = self._registry
        if registry is None or registry.ready:
            return
        reasons = [f"{name}: {state.reason}" for name, state in registry.states.items() if state.reason]
        raise RuntimeError(registry.broken or f"no model can be served ({'; '.join(reasons)})")


def build(arguments: Mapping[str, str]) -> serve.Application:
    """Return the application for ``serve run`` or a Serve config file. ``arguments`` are variables as for the plain
    server; they win over the environment of whoever builds.

    Raises ``ValueError`` for an unknown variable, a wrong value, and for an admin token: loading and unloading would
    reach one replica of several.
    """
    known = {*VARIABLES, *SWITCHES}
    for name in arguments.keys() - known:
        near = get_close_matches(name, known, 1)
        raise ValueError(f"unknown variable {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    own = {name: value for name, value in os.environ.items() if name in known}
    settings = settings_from_environment({**own, **{name: str(value) for name, value in arguments.items()}})
    if settings.admin_token:
        raise ValueError("ONPREM_ADMIN_TOKEN has no meaning on Ray: it would load and unload in one replica of several")
    deployed = serve.deployment(
        name="onprem",
        max_ongoing_requests=most_ongoing(settings),
        health_check_period_s=_HEALTH_PERIOD_S,
        graceful_shutdown_timeout_s=_SHUTDOWN_S,
    )
    return deployed(Replica).bind(settings)


def device_for(asked: str, gpus: Sequence[str]) -> str:
    """Return the device of a replica that Ray gave these GPUs. ``auto`` is what Ray gave, never less.

    Raises ``RuntimeError`` when CUDA is asked for and Ray gave none of it.
    """
    if asked == "auto":
        return "cuda" if gpus else "cpu"
    if asked.startswith("cuda") and not gpus:
        raise RuntimeError(f"ONPREM_DEVICE={asked}, but Ray gave this replica no GPU: set ray_actor_options.num_gpus")
    return asked


def most_ongoing(settings: Settings) -> int:
    """Return how many requests a replica admits at most: all that may wait for its models or be on their way through
    them, and some more, so that it is the replica that refuses."""
    on_their_way = sum(settings.pool_size_for(f) * settings.max_batch_for(f, _LARGEST_BATCH) for f in settings.features)
    return on_their_way + len(settings.features) * settings.max_waiting + _SPARE_REQUESTS
