"""Put the ramps together: store, toggle, gateways, and the loop that looks."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
from sqlalchemy.exc import SQLAlchemyError

from compare.plan import Plan
from compare.policy import Policy
from compare.ramp import Ramp
from compare.rampbook import RampBook
from compare.ramps import Ramps, ToggleWriter, abort_unrecorded
from compare.results import Results
from compare.states import States
from crossfade.comparison import StoreUnusable, open_reader
from crossfade.composition import plans, policies
from crossfade.config.configmap import ConfigMapToggle
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.model import Config
from crossfade.config.toggle import FileToggle
from crossfade.ramp_journal import RampJournal
from crossfade.ramping import Driver, Situation
from crossfade.served import TIMEOUT_S, ServedMeter, fetch_metrics
from shadow.store.reader import Reader

log = logging.getLogger(__name__)
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask, not where to listen


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


def open_ramps(path: Path, configmap: str | None, reader: Reader | None = None) -> Ramps:
    """Return the ramps of a config file, with all moves recorded that were made while the store was away. Raises
    ``ValueError`` where the file or the store cannot be used."""
    config = load_config(path, secrets=False)
    reader = reader or open_reader(config)
    journal = journal_of(config)
    try:
        book, results = RampBook(reader.engine), Results(reader.engine)
        states = States(reader.engine, results)
        journal.record(book, utc_now())
    except SQLAlchemyError as error:
        raise StoreUnusable(f"the store does not answer: {type(error).__name__}") from error
    except OSError as error:  # somebody else's file: no reason to keep a person from an abort
        log.error("moves that were made while the store was away stay unrecorded: %s", error)
    return Ramps(book, results, toggle_of(path, config, configmap), situation_of(path), utc_now, states, journal)


def abort_now(path: Path, configmap: str | None, route: str, who: str) -> tuple[Ramp, str]:
    """Bring a route back, also where the store does not answer; return where its ramp is, and where the move is noted
    (empty when it is recorded). Raises ``ValueError`` or ``OSError`` where the toggle cannot be written."""
    config = load_config(path, secrets=False)
    journal = journal_of(config)
    try:
        ramp = open_ramps(path, configmap).abort(route, who)
    except StoreUnusable:
        ramp = abort_unrecorded(route, who, toggle_of(path, config, configmap), journal, utc_now())
    with suppress(OSError):
        if any(move.route == route and move.at == ramp.entered_at for move in journal.pending()):
            return ramp, str(journal.path)
    return ramp, ""


def journal_of(config: Config) -> RampJournal:
    """Return where moves back are noted while the store does not answer."""
    return RampJournal.beside(Path(config.audit))


def toggle_of(path: Path, config: Config, configmap: str | None) -> ToggleWriter:
    """Return who moves the traffic: the ConfigMap ``NAME[/KEY]`` where one is named, else the file."""
    if configmap is None:
        return FileToggle(path)
    name, _, key = configmap.partition("/")
    return ConfigMapToggle.in_cluster(name, key or path.name, Path(config.audit))


def situation_of(path: Path) -> Situation:
    """Return what reads policies and plans anew from the file, as it may change while the driver runs."""

    def read() -> tuple[Mapping[str, Policy], Mapping[str, Plan]]:
        config = load_config(path, secrets=False)
        return {policy.route: policy for policy in policies(config)}, plans(config)

    return read


def gateway_addresses(config: Config, named: Sequence[str]) -> list[str]:
    """Return where the gateways' metrics are: those named, else where the config lets one listen."""
    if named:
        return [address.rstrip("/") for address in named]
    host, port = config.gateway.address
    host = _ANY.get(host, host)
    scheme = "http" if config.gateway.tls is None else "https"
    return [f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"]


def gateway_client(config: Config) -> httpx.Client:
    """Return the client that asks gateways for their counts. A gateway's own certificate may be for another name than
    loopback's, and counts are no secret: with TLS of its own it is not verified."""
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=config.gateway.tls is None)


def run_driver(
    path: Path, configmap: str | None, gateways: Sequence[str], interval_s: float, tell: Callable[[str], None]
) -> None:
    """Drive until SIGINT or SIGTERM. Raises ``ValueError`` for a config that cannot be used when it begins."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = load_config(path, secrets=False)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    owner = f"{socket.gethostname()}:{os.getpid()}"
    addresses = gateway_addresses(config, gateways)
    with gateway_client(config) as client:
        reader = open_reader(config)
        driver = Driver(
            reader, toggle_of(path, config, configmap), ServedMeter(addresses, partial(fetch_metrics, client)),
            situation_of(path), journal=journal_of(config), owner=owner, now=utc_now, tell=tell,
        )  # fmt: skip
        tell(f"driving the ramps of {path} as {owner}; counts from {', '.join(addresses)}")
        try:
            while not ended.is_set():
                if not _look(driver):
                    ended.wait(interval_s)
        finally:
            driver.close()
            reader.close()


def _look(driver: Driver) -> bool:
    """Look once; what goes wrong (the file is being edited) is logged, and the next look tries again."""
    try:
        return driver.look()
    except ConfigError as error:
        log.error("no ramp is watched until the config file can be read again: %s", error)
        return False
    except Exception:
        log.exception("a look at the ramps failed")
        return False
