"""What gateways served, out of their metrics: growth only, over restarts, and never more slow than there were."""

from __future__ import annotations

import httpx

from compare.policy import Policy
from compare.ramp_watch import Served
from crossfade.served import ServedMeter
from gateway.metrics import Metrics
from shadow.exchange import Failure, FailureKind, Observation

POLICIES = {"r": Policy("r", "cloud", "onprem", latency_slo_s=0.4)}


def serve(metrics: Metrics, backend: str, n: int, total_s: float = 0.1, **what: object) -> None:
    for _ in range(n):
        metrics.count_served("r", Observation(backend, "s", total_s=total_s, **{"status": 200, **what}))  # type: ignore[arg-type]


def test_only_what_is_new_counts_and_each_kind_where_it_belongs() -> None:
    metrics = Metrics()
    meter = ServedMeter(["one"], lambda _: metrics.render().decode())
    serve(metrics, "onprem", 50)
    assert meter.read(POLICIES) == {}
    serve(metrics, "onprem", 10)
    serve(metrics, "onprem", 3, status=503)
    serve(metrics, "onprem", 2, status=None, failure=Failure(FailureKind.TIMEOUT))
    serve(metrics, "onprem", 4, status=404)
    serve(metrics, "onprem", 7, status=None, failure=Failure(FailureKind.CANCELLED))
    serve(metrics, "cloud", 5, total_s=0.6)
    metrics.count_fallback("r", "cloud")
    assert meter.read(POLICIES) == {("r", "onprem"): Served(20, 6, 0), ("r", "cloud"): Served(5, 0, 5)}
    assert meter.read(POLICIES) == {("r", "onprem"): Served(), ("r", "cloud"): Served()}


def test_slow_is_counted_from_the_bucket_that_holds_the_objective() -> None:
    metrics = Metrics()
    meter = ServedMeter(["one"], lambda _: metrics.render().decode())
    meter.read(POLICIES)
    serve(metrics, "onprem", 5, total_s=0.45)
    serve(metrics, "onprem", 4, total_s=0.55)
    found = meter.read(POLICIES)
    assert found == {("r", "onprem"): Served(9, 0, 4)}


def test_a_gateway_that_began_anew_is_all_new() -> None:
    metrics = [Metrics()]
    meter = ServedMeter(["one"], lambda _: metrics[0].render().decode())
    serve(metrics[0], "onprem", 50)
    meter.read(POLICIES)
    metrics[0] = Metrics()
    serve(metrics[0], "onprem", 3)
    assert meter.read(POLICIES) == {("r", "onprem"): Served(3)}


def test_one_gateway_that_does_not_answer_leaves_everything_unread() -> None:
    metrics, down = Metrics(), [False]

    def fetch(address: str) -> str:
        if down[0] and address == "two":
            raise httpx.ConnectError("gone")
        return metrics.render().decode()

    meter = ServedMeter(["one", "two"], fetch)
    meter.read(POLICIES)
    down[0] = True
    serve(metrics, "onprem", 4)
    assert meter.read(POLICIES) is None
    down[0] = False
    assert meter.read(POLICIES) == {("r", "onprem"): Served(8)}


def test_what_is_no_metrics_is_not_known() -> None:
    assert ServedMeter(["one"], lambda _: "crossfade_requests_total{ nonsense").read(POLICIES) is None
