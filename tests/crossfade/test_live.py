"""What the dashboard hears of real gateways."""

from __future__ import annotations

from pathlib import Path

import httpx

from crossfade.live import GatewayLook
from tests.e2e.gateway_process import gateway_process, write_config
from tests.fakes.backend import Backend, answering, plain


def test_a_real_gateway_tells_its_traffic_its_mirror_and_the_limits_hit(tmp_path: Path) -> None:
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        config.write_text(config.read_text().replace("    shadow:", '    limits: ["3/hour"]\n    shadow:'))
        with gateway_process(config, port) as gateway, httpx.Client(trust_env=False) as client:
            statuses = [gateway.get("/").status_code for _ in range(5)]
            assert sorted(statuses) == [200, 200, 200, 429, 429]
            one = GatewayLook([gateway.url], client)()
            both = GatewayLook([gateway.url, gateway.url], client)()
            gone = GatewayLook([gateway.url, "http://127.0.0.1:1"], client)()
    assert (one.reached, one.received, one.refused) == (True, {"all": 3}, {"all": 2})
    assert one.mirror["breakers"] == {"cloud": "closed", "onprem": "closed"}
    assert (both.received, both.mirror["budget_total_bytes"]) == ({"all": 6}, 2 * 256 * 1024 * 1024)
    assert both.mirror["store_works"] is True
    assert not gone.reached
