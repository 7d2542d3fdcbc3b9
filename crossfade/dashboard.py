"""Put the dashboard together: who may see it, the store, the toggle, the ramps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compare.dashboard import server
from compare.dashboard.access import Access, Role
from compare.dashboard.app import create_app
from compare.results import Results
from crossfade.audit import append_line
from crossfade.comparison import open_reader
from crossfade.composition import policies
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.model import Config
from crossfade.live import GatewayLook
from crossfade.pair_export import pair_case, zipped
from crossfade.ramp_run import gateway_addresses, gateway_client, open_ramps

_log = logging.getLogger(__name__)

TOKENS = {
    Role.VIEWER: "CROSSFADE_DASHBOARD_VIEWER_TOKEN",
    Role.REVIEWER: "CROSSFADE_DASHBOARD_REVIEWER_TOKEN",
    Role.OPERATOR: "CROSSFADE_DASHBOARD_TOKEN",
}
"""The environment variables that hold the dashboard's tokens."""


def dashboard_access(config: Config, environ: Mapping[str, str]) -> Access:
    """Return who may see the dashboard: tokens from the environment, a trusted proxy and its users from the config."""
    rules = config.dashboard
    return Access(
        {role: environ[name] for role, name in TOKENS.items() if environ.get(name)},
        rules.user_header or "",
        rules.trusted_proxies,
        frozenset(rules.reviewers),
        frozenset(rules.operators),
    )


def serve_dashboard(
    path: Path,
    host: str,
    port: int,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
    notice: str = "",
    gateways: Sequence[str] = (),
) -> None:
    """Tell its address and serve the dashboard until a signal ends it. Raises ``ValueError`` beyond loopback when
    nobody has to be known, and where the address cannot be listened on."""
    config = load_config(path, secrets=False)
    reader = open_reader(config)
    with gateway_client(config) as client:
        app = create_app(
            reader,
            Results(reader.engine),
            policies(config),
            access=dashboard_access(config, environ),
            ramps=open_ramps(path, environ.get("CROSSFADE_CONFIGMAP"), reader),
            notice=notice,
            serving=lambda: _serving(path),
            gateways=GatewayLook(gateway_addresses(config, gateways), client),
            audit=lambda line: append_line(Path(config.audit), line),
            case=lambda exchange_id: zipped(pair_case(reader, config, exchange_id)[0]),
        )
        server.serve(app, host, port, tell)


def _serving(path: Path) -> Mapping[str, Mapping[str, float]]:
    """Return the toggle as the file has it now; nothing while the file cannot be used."""
    try:
        return {route.name: route.split for route in load_config(path, secrets=False).routes}
    except ConfigError as error:
        _log.warning("the config file cannot be read: %s", error)
        return {}
