"""The comparison and its dashboard on the command line: read the config, run the job with a bar, write files."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from compare.job import Job, Pool, RouteResult
from compare.junit import render_junit
from compare.machine import usable_cores
from compare.markdown import render_markdown
from compare.policy import Policy
from compare.report import render_report, to_json
from compare.table import render
from compare.verdict import exit_code
from crossfade.audit import append_line
from crossfade.composition import policies
from crossfade.config.comparing import ComparisonConfig
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.model import Config
from crossfade.replay.recorded import MARK, RECORDED
from shadow.errors import StoreError
from shadow.exchange import Exchange
from shadow.store.reader import Reader

_log = logging.getLogger(__name__)
FOLLOW_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files to write beside the table."""

    html: Path | None = None
    json: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    static: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that were asked for."""
        return tuple(path for path in (self.html, self.json, self.markdown, self.junit) if path is not None)


@dataclass(frozen=True, slots=True)
class Looking:
    """How the job looks at the record: with so many processes, at what was received ``since`` a moment only, and
    whether it keeps up with live traffic until Ctrl-C."""

    workers: int | None = None
    since: datetime | None = None
    follow: bool = False


def compare_routes(config: Path, routes: Sequence[str], outputs: Outputs, looking: Looking | None = None) -> int:
    """Compare what is new, print the table, write the files. Returns the worst exit code of the verdicts.

    Raises ``ValueError`` for a config or a route name that cannot be used.
    """
    console = Console()
    results = judge(load_config(config, secrets=False), routes, outputs, console, looking=looking or Looking())
    for path in outputs.files:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
    return exit_code([result.verdict for result in results])


def judge(
    config: Config,
    routes: Sequence[str],
    outputs: Outputs,
    console: Console,
    *,
    notice: str = "",
    looking: Looking | None = None,
) -> list[RouteResult]:
    """Run the comparison job over the chosen routes (all when none is named) with a progress bar.

    One process measures for each core that may be used, at most eight, where ``looking`` does not say how many.
    Folders of the files that are missing are made. Raises ``ConfigError``: for a file that cannot be written before
    anything is measured.
    """
    for path in outputs.files:
        _touch(path)
    reader = open_reader(config)
    try:
        chosen = _choose(policies(config), routes, reader)
        _check_packages(chosen)
        results = _run(reader, chosen, console, looking or Looking(), config.compare)
        console.print(render(results))
        now = datetime.now(UTC)
        if outputs.html:
            _write(outputs.html, render_report(results, reader, generated_at=now, notice=notice, static=outputs.static))
            shown = {"file": str(outputs.html), "routes": [policy.route for policy in chosen]}
            append_line(Path(config.audit), {"at": now.isoformat(), "event": "report_with_pictures", **shown})
        if outputs.json:
            _write(outputs.json, to_json(results, generated_at=now, notice=notice))
        if outputs.markdown:
            _write(outputs.markdown, render_markdown(results, generated_at=now, notice=notice))
        if outputs.junit:
            _write(outputs.junit, render_junit(results, generated_at=now))
        return results
    except (StoreError, DBAPIError) as error:  # say, the object store is away: what is not measured is not judged
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise ConfigError(f"the store failed, nothing was judged: {cause}") from error
    finally:
        reader.close()


class StoreUnusable(ConfigError):
    """The store cannot be opened, or does not answer."""


def open_reader(config: Config) -> Reader:
    """Open the store that the config names, for reading. Raises ``StoreUnusable`` where it cannot be opened."""
    try:
        store = config.store
        return Reader.open(store.url, store.bodies, store.keep_bodies_days, key=store.key)
    except StoreError as error:
        raise StoreUnusable(f"the store cannot be opened: {error}") from error


def _choose(known: Sequence[Policy], routes: Sequence[str], reader: Reader) -> list[Policy]:
    names = [policy.route for policy in known]
    unknown = [route for route in routes if route.partition(MARK)[0] not in names]
    if unknown:
        raise ConfigError(f"there is no route {', '.join(unknown)}; the config has {', '.join(names)}")
    runs = [_policy_of_run(known, route, reader) for route in routes if MARK in route]
    return [policy for policy in known if not routes or policy.route in routes] + runs


def _check_packages(chosen: Sequence[Policy]) -> None:
    """Raise ``ConfigError`` where a route asks for a measure that is not installed."""
    for policy in chosen:
        asked = (policy.image.lossy_ssimulacra2, policy.image.restore_ssimulacra2) != (None, None)
        if asked and find_spec("ssimulacra2") is None:
            raise ConfigError(f"route {policy.route} asks for SSIMULACRA2: pip install 'crossfade[perceptual]'")


def _policy_of_run(known: Sequence[Policy], route: str, reader: Reader) -> Policy:
    first = next(iter(reader.exchanges(route, limit=1)), None)
    policy = None if first is None else policy_of(known, first)
    if policy is None:
        raise ConfigError(f"there is no run {route}: crossfade replay says how a run is called when it ends")
    return policy


def policy_of(known: Sequence[Policy], exchange: Exchange) -> Policy | None:
    """Return what an exchange is judged by, ``None`` where its route is not known any more. A replayed run has its
    route's policy, the recorded answers as the baseline. It spans the time that somebody chose, so none is demanded; a
    promote of it moves nothing."""
    route = exchange.route
    policy = next((policy for policy in known if policy.route == route.partition(MARK)[0]), None)
    if policy is None or MARK not in route:
        return policy
    if exchange.shadow is None:
        return None
    judged = replace(policy, route=route, baseline=RECORDED, candidate=exchange.shadow.backend)
    return replace(judged, min_span_s=0.0, mirror_percent=100.0)


def _run(
    reader: Reader, chosen: Sequence[Policy], console: Console, looking: Looking, where: ComparisonConfig
) -> list[RouteResult]:
    workers = looking.workers or usable_cores()
    job = Job(reader, chosen, workers=workers, pool=_cluster(workers, where) if where.engine == "ray" else None)
    try:
        with _bars(console) as progress:
            results = job.step(progress)
        if looking.follow:
            results = _follow(job, results, console)
        return job.since(looking.since) if looking.since else results
    finally:
        job.close()


def _cluster(workers: int, where: ComparisonConfig) -> Pool:
    """Return the workers on Ray. Raises ``ConfigError`` where Ray is not installed."""
    try:
        from compare.cluster import RayWorkers
    except ModuleNotFoundError as error:
        raise ConfigError(f"compare.engine is ray, which needs {error.name}: pip install 'crossfade[ray]'") from error
    return RayWorkers(workers, Path(where.folder) if where.folder else None)


def _follow(job: Job, results: list[RouteResult], console: Console) -> list[RouteResult]:
    """Keep up with live traffic and show the table as it stands, until Ctrl-C; return what was known then.

    A signal only asks for the end: a batch that is being measured is measured and stored.
    """
    ended = Event()
    before = {each: signal.signal(each, lambda *_: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while not ended.is_set():
                live.update(Group(render(results), Text("following; Ctrl-C ends it", style="dim")), refresh=True)
                if not ended.wait(FOLLOW_EVERY_S):
                    results = job.step()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return results


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each route with its rate and the time left; yield what takes the progress."""
    columns = (TextColumn("comparing {task.description:18}"), BarColumn(), MofNCompleteColumn(), _Rate(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        bars: dict[str, TaskID] = {}

        def advance(route: str, done: int, total: int) -> None:
            if route not in bars:
                bars[route] = progress.add_task(route, total=total)
            progress.update(bars[route], completed=done, total=total)

        yield advance


class _Rate(ProgressColumn):
    """Pairs a second."""

    def render(self, task: Task) -> Text:
        """Return the rate of one bar."""
        return Text(f"{task.speed:,.0f} pairs/s" if task.speed else "", style="dim")


def _touch(path: Path) -> None:
    """Make a file that its owner alone may read: reports hold thumbnails of people's pictures."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file in it, such as {path / 'report.html'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
