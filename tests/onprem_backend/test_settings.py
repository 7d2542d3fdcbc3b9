"""Settings from the environment and from arguments."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from onprem_backend.settings import FEATURES, VARIABLES, Settings, settings_from_environment, unknown_variables


def test_everything_is_on_by_default() -> None:
    assert settings_from_environment({}) == Settings()
    assert settings_from_environment({}).features == frozenset(FEATURES)


def test_switches_turn_features_off() -> None:
    environ = {"ENABLE_RESTORE": "false", "ENABLE_REMOVER": "0", "ENABLE_ERASER": "No", "ENABLE_FACEBLUR": "off"}
    assert settings_from_environment(environ).features == {"classify"}
    assert settings_from_environment({"ENABLE_CLASSIFY": "0"}).features == frozenset(FEATURES) - {"classify"}


def test_arguments_win_over_the_environment() -> None:
    environ = {"CROSSFADE_MODELS": "/a", "ONPREM_ENGINE": "onnxruntime", "ONPREM_POOL_SIZES": "restore=1, classify=4"}
    settings = settings_from_environment(environ, models_dir=Path("/b"), engine=None)
    assert (settings.models_dir, settings.engine) == (Path("/b"), "onnxruntime")
    assert settings_from_environment({"ONPREM_MAX_BATCHES": "classify=4"}).max_batch_for("classify", 1) == 4
    assert (settings.pool_size_for("restore"), settings.pool_size_for("erase")) == (1, settings.pool_size)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ENABLE_RESTORE": "maybe"}, "ENABLE_RESTORE"),
        ({"ONPREM_THREADS": "two"}, "ONPREM_THREADS"),
        ({"ONPREM_THREADS": "0"}, "at least 1"),
        ({"ONPREM_ENGINE": "tensorrt"}, "torch, onnxruntime"),
        ({"ONPREM_CHANNELS_LAST": "maybe"}, "ONPREM_CHANNELS_LAST"),
        ({"ONPREM_MAX_BATCHES": "classify=0"}, "at least 1"),
        ({"ONPREM_POOL_SIZES": "upscale=1"}, "unknown feature 'upscale'"),
        ({"ONPREM_DEVICE": "tpu"}, "auto, cpu, cuda or cuda:N, not 'tpu'"),
        ({"ONPREM_DEVICE": "cuda:-1"}, "cuda:N"),
        ({"ONPREM_BATCH_DELAY_S": "-1"}, "batch_delay_s must be at least 0"),
        ({"ONPREM_WAIT_S": "nan"}, "wait_s must be at least"),
        ({"ONPREM_BODY_TIMEOUT_S": "inf"}, "body_timeout_s must be at least"),
        ({"ONPREM_MAX_BODY_BYTES": "0"}, "max_body_bytes must be at least 1"),
    ],
)
def test_a_bad_value_names_its_variable(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_from_environment(environ)


def test_every_number_has_a_least_value() -> None:
    for variable, (name, parse) in VARIABLES.items():
        if parse in (int, float):
            with pytest.raises(ValueError, match=f"{name} must be at least"):
                settings_from_environment({variable: "-1"})


def test_a_misspelt_variable_is_told_and_what_kubernetes_sets_is_not() -> None:
    of_a_service = ["ONPREM_SERVICE_HOST", "ONPREM_SERVICE_PORT_HTTP", "ONPREM_PORT", "ONPREM_PORT_9002_TCP_ADDR"]
    assert unknown_variables([*VARIABLES, *of_a_service, "ONPREM_HEAD_SVC_SERVICE_HOST", "PATH"]) == {}
    assert unknown_variables(["ONPREM_POOLSIZE"]) == {"ONPREM_POOLSIZE": "ONPREM_POOL_SIZE"}


def test_every_setting_can_come_from_the_environment() -> None:
    assert {name for name, _ in VARIABLES.values()} | {"features"} == {field.name for field in fields(Settings)}
