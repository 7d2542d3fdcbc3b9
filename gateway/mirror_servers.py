"""Which servers the mirror's calls go to: chosen like a client's, and of no consequence for one.

Two fleets look at the same servers. The clients' says which of them are well; it is asked, and never told. The mirror's
own counts the mirror's calls and ejects what fails them, so a server that only the mirror calls is left alone as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.condition import UNABLE, Outcome
from gateway.fleet import Call, Fleet
from gateway.generation import Server
from gateway.settings import Backend
from shadow.call import Target
from shadow.exchange import FailureKind, Observation
from shadow.servers import ServerCall


class MirrorServers:
    """Chooses for the mirror. ``clients`` is the fleet that serves clients; ``clock`` is monotonic seconds."""

    def __init__(self, clients: Fleet, clock: Callable[[], float], rng: random.Random) -> None:
        self._clients = clients
        self._own = Fleet(clock, rng)

    def configure(self, backends: Mapping[str, Backend]) -> None:
        """Take up the settings; calls that were planned before keep their servers."""
        self._own.configure(backends)

    def target(self, backend: Backend, servers: Sequence[Server]) -> Target:
        """Return the backend as the mirror calls it."""
        credential = backend.credential
        return Target(
            name=backend.name,
            servers=backend.servers,
            timeout_s=backend.timeout_s,
            connect_timeout_s=backend.connect_timeout_s,
            credential=(credential.header, credential.value) if credential is not None else None,
            choose=partial(self.choose, backend, servers),
        )

    def choose(self, backend: Backend, servers: Sequence[Server]) -> ServerCall | None:
        """Start a call at one of the backend's servers: one that is well for clients, as long as there is one."""
        well = [server for server in servers if self._clients.is_available(backend.name, server.name)]
        call = self._own.begin(backend, well or servers) or self._own.begin(backend, servers, last_resort=True)
        return _MirrorCall(call) if call is not None else None


class _MirrorCall:
    """One call, ended with what was observed."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.way = call.server.way

    def end(self, observation: Observation | None) -> None:
        """Count the outcome."""
        self._call.end(_outcome(observation))


def _outcome(observation: Observation | None) -> Outcome:
    if observation is None:
        return Outcome.ABANDONED
    failure = observation.failure
    if failure is None:
        return Outcome.FAILURE if observation.status in UNABLE else Outcome.SUCCESS
    if failure.kind in (FailureKind.TOO_LARGE, FailureKind.CANCELLED):
        return Outcome.ABANDONED
    return Outcome.NO_CONNECTION if failure.kind is FailureKind.CONNECT else Outcome.FAILURE
