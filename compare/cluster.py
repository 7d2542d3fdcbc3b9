"""Measure on a Ray cluster: the same function over a Parquet set, as Ray Data map tasks (extra ``ray``).

A batch is written as Parquet (its exchanges with their bodies, in the order of the record), read by Ray Data, measured
where there is room, and comes back as the measurements' own JSON, which is lossless: the results are those of local
processes to the last digit. Ray restarts a task whose process dies and bounds its memory; a measurement that never ends
is not ended by Ray, so for hostile traffic the local engine is the safer one.

The set holds people's pictures: it lies in a private folder for as long as its batch takes, then it is removed. On more
than one machine that folder has to be on storage that all of them share.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data

from compare.measurement import Measurement, measurement_from_json
from compare.measuring import measure_safely
from compare.policy import Policy
from shadow.exchange import Exchange

_ROW_GROUP = 16
_OBJECT_STORE_BYTES = 512 * 1024**2


class RayWorkers:
    """Measures batches on Ray: on the cluster that ``RAY_ADDRESS`` names, else on a local one of ``count`` cores that
    is started here and ended by ``close``."""

    batch = 512

    def __init__(self, count: int, folder: Path | None = None) -> None:
        self._folder = folder
        if not ray.is_initialized():
            ray.init(**_local(count), log_to_driver=False, configure_logging=False)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True

    def measure(self, exchanges: Sequence[Exchange], policy: Policy) -> list[Measurement]:
        """Measure a batch, in its order. Blocks."""
        if not exchanges:
            return []
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="crossfade-", dir=self._folder))
        try:
            write_set(exchanges, place / "exchanges.parquet")
            rows = ray.data.read_parquet(str(place)).map(measuring(policy)).take_all()
        finally:
            shutil.rmtree(place)
        ordered = sorted(rows, key=lambda row: int(row["place"]))
        return [measurement_from_json(row["measurement"]) for row in ordered]

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        ray.shutdown()


def _local(count: int) -> dict[str, Any]:
    """Return how to start a cluster of our own, nothing where one is named by ``RAY_ADDRESS``."""
    if os.environ.get("RAY_ADDRESS"):
        return {}
    return {"num_cpus": max(1, count), "object_store_memory": _OBJECT_STORE_BYTES, "include_dashboard": False}


def write_set(exchanges: Sequence[Exchange], path: Path) -> None:
    """Write exchanges with their bodies as a Parquet file."""
    table = pa.table(
        {
            "place": pa.array(range(len(exchanges)), pa.int64()),
            "exchange": pa.array([pickle.dumps(each) for each in exchanges], pa.large_binary()),
        }
    )
    pq.write_table(table, path, row_group_size=_ROW_GROUP)


def measuring(policy: Policy) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what is mapped over the rows."""

    def measure_row(row: dict[str, Any]) -> dict[str, Any]:
        exchange: Exchange = pickle.loads(row["exchange"])  # noqa: S301 - written by write_set a moment ago
        return {"place": row["place"], "measurement": measure_safely(exchange, policy).to_json()}

    return measure_row
