"""What an operator sees and does: model readiness, loading and unloading, metrics, traces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onprem_backend.account import Account
from onprem_backend.metrics import Metrics
from onprem_backend.settings import Settings
from onprem_backend.tracing import Trace, open_telemetry, tracer_from_environment
from tests.onprem_backend.pictures import png
from tests.onprem_backend.processes import running_app
from tests.onprem_backend.scripted_models import BROKEN_SPEC, HANG, NO_FACE, OBEY, SPEC, command_picture
from tests.onprem_backend.test_failures import wait_for_idle

TOKEN = "a-token-of-nobody"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def settings(tmp_path: Path, **changes: Any) -> Settings:
    return Settings(**{"models_dir": tmp_path, "device": "cpu", "pool_size": 1, "admin_token": TOKEN, **changes})


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        running_app(settings(tmp_path), [SPEC, BROKEN_SPEC]) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


def ask(http: httpx.Client, command: int = OBEY, **headers: str) -> httpx.Response:
    return http.post("/v1/face-blur", content=png(command_picture(command)), headers=headers)


def test_each_model_tells_whether_it_is_ready(http: httpx.Client) -> None:
    assert http.get("/v2/models/scripted/ready").json()["ready"] is True
    broken = http.get("/v2/models/broken/ready")
    assert (broken.status_code, broken.json()["state"]) == (503, "unusable")
    unknown = http.get("/v2/models/nothing/ready")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_model")


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
@pytest.mark.parametrize("action", ["load", "unload"])
def test_nobody_loads_or_unloads_without_the_token(http: httpx.Client, action: str, header: dict[str, str]) -> None:
    response = http.post(f"/v2/repository/models/scripted/{action}", headers=header)
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert ask(http).status_code == 200


def test_without_a_configured_token_no_token_is_right(tmp_path: Path) -> None:
    with running_app(settings(tmp_path, admin_token=""), [SPEC]) as address:
        for value in ("Bearer", f"Bearer {TOKEN}"):
            headers = {"Authorization": value}
            response = httpx.post(f"{address}/v2/repository/models/scripted/unload", headers=headers)
            assert response.status_code == 401


def test_the_token_is_in_no_repr(tmp_path: Path) -> None:
    assert TOKEN not in repr(settings(tmp_path))


def test_a_model_is_unloaded_and_loaded_again(http: httpx.Client) -> None:
    gone = http.post("/v2/repository/models/scripted/unload", headers=ADMIN)
    assert (gone.status_code, gone.json()["state"]) == (200, "unloaded")
    assert ask(http).json()["code"] == "model_unloaded"
    assert http.get("/v2/models/scripted/ready").status_code == 503
    assert http.get("/v2/health/ready").status_code == 503
    back = http.post("/v2/repository/models/scripted/load", headers=ADMIN)
    assert (back.status_code, back.json()["state"]) == (200, "ready")
    assert ask(http).status_code == 200
    still_broken = http.post("/v2/repository/models/broken/load", headers=ADMIN)
    assert (still_broken.status_code, still_broken.json()["state"]) == (503, "unusable")
    unknown = http.post("/v2/repository/models/nothing/load", headers=ADMIN)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_model")


@pytest.mark.anyio
async def test_a_request_in_flight_is_answered_before_its_model_goes(tmp_path: Path) -> None:
    with running_app(settings(tmp_path, inference_timeout_s=3.0), [SPEC]) as address:
        async with httpx.AsyncClient(base_url=address, timeout=30) as http:
            hanging = asyncio.create_task(http.post("/v1/face-blur", content=png(command_picture(HANG))))
            with httpx.Client(base_url=address) as watcher:
                await asyncio.to_thread(wait_for_idle, watcher, 0, 30.0)
            gone = await http.post("/v2/repository/models/scripted/unload", headers=ADMIN)
            assert gone.json()["state"] == "unloaded"
            assert hanging.done() or (await hanging).status_code == 503
            assert (await hanging).json()["code"] == "inference_timeout"


def samples(http: httpx.Client) -> dict[str, float]:
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_waiting_and_computing_are_measured_apart_per_model(http: httpx.Client) -> None:
    for command in (OBEY, OBEY, NO_FACE):
        ask(http, command)
    seen = samples(http)
    counted = {
        code: seen[f'onprem_requests_total{{code="{code}",feature="face-blur",model="scripted"}}']
        for code in ("ok", "no_face_found")
    }
    assert counted == {"ok": 2, "no_face_found": 1}
    for step, count in {"queue": 3, "decode": 3, "inference": 2, "encode": 2}.items():
        assert seen[f'onprem_{step}_seconds_count{{model="scripted"}}'] == count
    assert seen['onprem_sessions{model="scripted"}'] == 1
    assert seen['onprem_sessions_in_use{model="scripted"}'] == 0
    assert seen['onprem_model_ready{model="broken"}'] == 0
    assert seen["process_resident_memory_bytes"] > 1e7


def test_two_servers_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.requests.labels("f", "m", "ok").inc()
    assert first.registry.get_sample_value("onprem_requests_total", {"feature": "f", "model": "m", "code": "ok"}) == 1
    assert (
        second.registry.get_sample_value("onprem_requests_total", {"feature": "f", "model": "m", "code": "ok"}) is None
    )


def test_spans_continue_the_callers_trace(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with running_app(settings(tmp_path), [SPEC], tracer=open_telemetry(provider)) as address:
        httpx.post(f"{address}/v1/face-blur", content=png(command_picture(OBEY)), headers={"traceparent": PARENT})
        httpx.post(f"{address}/v1/face-blur", content=png(command_picture(NO_FACE)))
    spans = list(exporter.get_finished_spans())
    good, bad = (span for span in spans if span.name == "onprem face-blur")
    assert f"{_context(good).trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert good.parent is not None
    assert f"{good.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert good.attributes == {"onprem.feature": "face-blur", "onprem.model": "scripted"}
    steps = [span for span in spans if span.parent == good.context]
    assert [step.name for step in steps] == ["queue", "decode", "queue", "inference", "encode"]
    ends = [(step.start_time, step.end_time) for step in steps]
    assert ends == sorted(ends)
    assert bad.parent is None
    assert bad.status.description == "no_face_found"


def _context(span: ReadableSpan) -> Any:
    return span.context


def test_without_an_endpoint_nothing_is_traced() -> None:
    tracer = tracer_from_environment({}, "server")
    assert tracer(Trace("t", {}, "ok", [])) is None  # type: ignore[func-returns-value]


def test_the_steps_of_an_account_add_up() -> None:
    account = Account("classify")
    account.done("queue")
    account.done("decode")
    account.done("inference", waited_s=0.0)
    account.done("encode")
    names = [item.partition(";")[0] for item in account.server_timing().split(", ")]
    assert names == ["queue", "decode", "inference", "encode"]
    assert account.duration_s("queue") >= 0
