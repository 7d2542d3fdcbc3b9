"""The config file: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade.composition import ConfigFile, gateway_settings, policies
from crossfade.config.loading import ConfigError, load_config, parse_config
from gateway.generation import check
from gateway.settings import ApiCaller, Concurrency, Cors, Limit

GOOD = """\
gateway: {listen: 127.0.0.1:8080}
backends:
  cloud:  {servers: ["http://127.0.0.1:9001"], auth: {header: Authorization, value: "Bearer ${CLOUD_KEY}"}}
  onprem: {servers: ["http://127.0.0.1:9002"], timeout_s: 30}
routes:
  - name: remove-background
    match: {methods: [POST], path: /v1/remove-background}
    baseline: cloud
    candidate: onprem
    active: cloud                        # the toggle: a backend's name, or {cloud: 95, onprem: 5}
    shadow: {percent: 100, control_percent: 2}
    limits: ["10/second", "1000/hour"]   # per caller
    compare: {kind: image, latency_slo_s: 3}
limits: {storage: "memory://"}           # or async+redis://…
store: {url: "sqlite:///var/crossfade.db", bodies: "var/bodies", keep_bodies_days: 7}
"""
ENVIRON = {"CLOUD_KEY": "k3y"}
HASH = "sha256:" + "0" * 64


def test_the_documented_config_is_read_into_every_rooms_values() -> None:
    config = parse_config(GOOD, environ=ENVIRON)
    settings = gateway_settings(config)
    (route,) = settings.routes
    assert (route.baseline, route.candidate, dict(route.active)) == ("cloud", "onprem", {"cloud": 100})
    assert (route.shadow.percent, route.shadow.control_percent) == (100, 2)
    assert route.limits == (Limit("10/second"), Limit("1000/hour"))
    assert settings.backends["cloud"].credential is not None
    assert settings.backends["cloud"].credential.value == "Bearer k3y"
    (policy,) = policies(config)
    assert (policy.kind, policy.latency_slo_s, policy.routes) == ("image", 3, 1)


def test_everything_that_can_be_said_of_limits_and_callers_is_read() -> None:
    text = GOOD.replace(
        'limits: ["10/second", "1000/hour"]   # per caller',
        """limits:
      - 10/second
      - {quota: 5/hour, per: "header:X-T", unit: megabyte, strategy: fixed-window, dry_run: true}
    concurrency: {slots: 4, per: caller, name: gpu, max_waiting: 9, max_wait_s: 2.5, dry_run: true}
    cost: 3
    public: true
    cors: {origins: ["https://app.example"], credentials: true}""",
    )
    more = f"""
limits: {{on_failure: local, forwarded_header: Forwarded, gateway: [{{quota: 9/second, per: everyone}}]}}
callers:
  acme: {{keys: ["{HASH}"], routes: [remove-background], limits: [100/minute]}}
"""
    settings = gateway_settings(parse_config(text.replace('limits: {storage: "memory://"}', more), environ=ENVIRON))
    (route,) = settings.routes
    assert route.limits[1] == Limit("5/hour", "header:X-T", "megabyte", "fixed-window", True)
    assert route.concurrency == Concurrency(4, "caller", "gpu", 9, 2.5, True)
    assert (route.cost, route.public, route.cors) == (3, True, Cors(("https://app.example",), True))
    assert (settings.limits.on_failure, settings.limits.forwarded_header) == ("local", "Forwarded")
    assert settings.gateway_limits == (Limit("9/second", "everyone"),)
    assert settings.callers == (ApiCaller("acme", (HASH,), frozenset({"remove-background"}), (Limit("100/minute"),)),)


def test_a_split_is_read_as_percents() -> None:
    config = parse_config(GOOD.replace("active: cloud ", "active: {cloud: 95, onprem: 5} "), environ=ENVIRON)
    assert dict(gateway_settings(config).routes[0].active) == {"cloud": 95, "onprem": 5}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: image", "kind: imge", "; did you mean image?"),
        ("active: cloud ", "active: clod ", "; did you mean cloud?"),
        ("header: Authorization", "header: Content-Length", "cannot carry a credential"),
        ("limits: {storage", "backends: {storage", ":14: a key is there twice"),
        (
            "latency_slo_s",
            "latency_slo",
            ":13: routes[0].compare.latency_slo: unknown key; did you mean latency_slo_s?",
        ),
        ("limits: {storage", "limitz: {storage", ":14: limitz: unknown key; did you mean limits?"),
        ("active: ", "activ: ", ":6: routes[0].active: this key is required"),
        ("baseline: cloud", "baseline: clod", ":6: routes[0]: active names cloud, but this route has clod and onprem"),
        ("candidate: onprem", "candidate: cloud", "two different backends"),
        (
            "candidate: onprem",
            "candidate: gpu",
            "route remove-background: candidate is gpu, but backends has cloud, onprem",
        ),
        ('"10/second"', '"10/sek"', ":12: routes[0].limits[0].quota: '10/sek' is no limit"),
        (
            '"10/second"',
            "{quota: 1/second, unti: megabyte}",
            ":12: routes[0].limits[0].unti: unknown key; did you mean unit?",
        ),
        ('"10/second"', "{quota: 1/second, per: planet}", ":12: routes[0].limits[0].per: "),
        ("limits: [", "concurrency: {slots: 0}\n    limits: [", ":12: routes[0].concurrency.slots: "),
        ("limits: [", "cors: {origins: [app.example]}\n    limits: [", ":12: routes[0].cors.origins[0]: "),
        ("store:", "callers: {acme: {keys: [secret]}}\nstore:", ":15: callers.acme.keys[0]: "),
        (
            "store:",
            f"callers: {{acme: {{keys: ['{HASH}'], routes: [nowhere]}}}}\nstore:",
            "caller acme: routes has nowhere, but there is remove-background",
        ),
        (
            "store:",
            f"callers: {{acme: {{keys: ['{HASH}']}}, beta: {{keys: ['{HASH}']}}}}\nstore:",
            "caller beta: this key is also listed for acme",
        ),
        ("active: cloud ", "active: {cloud: 95, onprem: 6} ", "active must sum to 100 percent, not 101"),
        ("active: cloud ", "active: mars ", "active names mars"),
        ("http://127.0.0.1:9001", "ftp://127.0.0.1", "must look like http://host:port"),
        ("http://127.0.0.1:9001", "http://user:pw@host", "must look like http://host:port"),
        ("http://127.0.0.1:9001", "http://host:99999", "servers[0]: the port must be a number from 1 to 65535"),
        ("http://127.0.0.1:9001", "http://host:0/x", "the port must be a number from 1 to 65535, not '0'"),
        ("http://127.0.0.1:9001", "http://host:+80", "the port must be a number from 1 to 65535"),
        ("http://127.0.0.1:9001", "http://host:", "the port must be a number from 1 to 65535"),
        ("http://127.0.0.1:9001", "http://a:b:80", "the port must be a number from 1 to 65535, not 'b:80'"),
        ("http://127.0.0.1:9001", "unix://run/model.sock", "must look like unix:///run/model.sock"),
        ("127.0.0.1:8080", "127.0.0.1:65536", "gateway.listen: the port must be a number from 0 to 65535"),
        ("127.0.0.1:8080", "127.0.0.1:\uff18\uff10", "gateway.listen: the port must be a number"),
        ("127.0.0.1:8080", '"::1:8080"', "gateway.listen: must be host:port, for example 127.0.0.1:8080 or [::1]:8080"),
        ('"10/second"', '"0/second"', "limits[0].quota: a limit must admit at least one request"),
        ('"10/second"', '"10 per 0 seconds"', "limits[0].quota: a limit must admit at least one request"),
        ('"10/second"', '"10/99999999999 years"', "limits[0].quota: a limit is at most"),
        ('"10/second"', '"99999999999999999999/day"', "limits[0].quota: a limit is at most"),
        ("127.0.0.1:8080", "localhost", "must be host:port"),
        ("memory://", "memcached://x", "must be memory:// or async+redis://"),
        ("memory://", "async+redis://:k3y#x@host:6379/0", "what is special in a password"),
        ("memory://", "async+redis://:k3y@host:6379/first", "limits.storage: must be a URL such as redis://"),
        ("memory://", "async+redis://:k3y@", "limits.storage: must be a URL such as redis://"),
        ("memory://", "async+rediss://:k3y@host?ssl_certs=none", "options that the client library knows"),
        ("timeout_s: 30}\nroutes", "timeout_s: -1}\nroutes", ":4: backends.onprem.timeout_s"),
        ("gateway: {", "gateway: [", ":1: not valid YAML"),
        (
            "${CLOUD_KEY}",
            "${NO_SUCH_KEY}",
            ":3: backends.cloud.auth.value: the environment variable NO_SUCH_KEY is not set",
        ),
        (
            "Bearer ${CLOUD_KEY}",
            "file:/no/such/file",
            ":3: backends.cloud.auth.value: the secret's file cannot be read",
        ),
    ],
)
def test_a_fault_is_named_with_its_line_and_key(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD.replace(old, new, 1), name="c.yaml", environ=ENVIRON)
    assert said in str(caught.value)
    assert "k3y" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "# nothing", "[]", "just text", "routes: []", "backends: {}\nroutes: []", "a: &x [*x]", "? [1]: 2", "\x00"],
)
def test_text_that_is_no_config_is_an_error_for_a_person(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text)


@given(st.text(max_size=200))
def test_no_text_brings_the_parser_down(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text, environ={})


@given(st.integers(0, len(GOOD)))
def test_no_half_written_file_brings_the_parser_down(length: int) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_config(GOOD[:length], environ=ENVIRON).routes


@pytest.mark.parametrize("secret", ["", " ", "two\nlines", "snow\N{SNOWMAN}", "tab\tbed"])
def test_a_credential_that_cannot_be_a_header_is_refused(secret: str) -> None:
    with pytest.raises(ConfigError, match="printable Latin-1"):
        parse_config(GOOD.replace("Bearer ${CLOUD_KEY}", "${CLOUD_KEY}"), environ={"CLOUD_KEY": secret})


def test_a_line_feed_at_the_end_of_a_credential_is_taken_off() -> None:
    config = parse_config(GOOD, environ={"CLOUD_KEY": "k3y\n"})
    assert gateway_settings(config).backends["cloud"].credential.value == "Bearer k3y"  # type: ignore[union-attr]


def test_what_is_said_of_a_broken_file_repeats_no_value() -> None:
    twice = GOOD.replace('value: "Bearer ${CLOUD_KEY}"', 'value: "Bearer s3cret", value: "Bearer s3cret2"')
    with pytest.raises(ConfigError) as caught:
        parse_config(twice, environ=ENVIRON)
    assert "s3cret" not in str(caught.value)


def test_a_file_of_brackets_is_an_error_and_no_crash() -> None:
    with pytest.raises(ConfigError):
        parse_config("[" * 3000)


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    levels = [f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]" for level in range(1, 7)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse_config("\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *levels]))


def test_two_routes_for_the_same_requests_are_refused() -> None:
    route = "".join(GOOD.splitlines(keepends=True)[5:13])
    twice = GOOD.replace(route, route + route.replace("name: remove-background", "name: other"))
    with pytest.raises(ConfigError, match="POST /v1/remove-background already belongs to remove-background"):
        parse_config(twice, environ=ENVIRON)


def test_a_changed_address_is_rejected_while_running(tmp_path: Path) -> None:
    path = tmp_path / "crossfade.yaml"
    path.write_text(GOOD)
    source = ConfigFile(path, ENVIRON)
    source.load()
    path.write_text(GOOD.replace("8080", "8081"))
    with pytest.raises(ConfigError, match="needs a restart"):
        source.load()


def test_credentials_of_backends_are_secret_everywhere() -> None:
    text = GOOD.replace("header: Authorization", "header: X-Vendor-Pass")
    text = text.replace("keep_bodies_days: 7", "redact: [X-Pin]")
    rule = gateway_settings(parse_config(text, environ=ENVIRON)).routes[0].shadow
    secret = ("x-vendor-pass", "X-PIN", "Ocp-Apim-Subscription-Key", "X-Auth-Token", "Cookie")
    assert [name for name in secret if not rule.hides(name)] == []
    open_ = ("Content-Type", "X-Request-Id", "Idempotency-Key", "Accept", "X-Monkey")
    assert [name for name in open_ if rule.hides(name)] == []


def test_a_secret_never_shows(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    text = GOOD.replace("Bearer ${CLOUD_KEY}", f"file:{tmp_path}/key")
    config = parse_config(text, environ={})
    assert gateway_settings(config).backends["cloud"].credential.value == "s3cret"  # type: ignore[union-attr]
    for shown in (repr(config), str(config), config.model_dump_json(), repr(gateway_settings(config))):
        assert "s3cret" not in shown


def test_relative_paths_start_at_the_files_own_folder(tmp_path: Path) -> None:
    path = tmp_path / "crossfade.yaml"
    path.write_text(GOOD)
    store = load_config(path, ENVIRON).store
    assert store.url == f"sqlite:///{tmp_path}/var/crossfade.db"
    assert store.bodies == f"{tmp_path}/var/bodies"


def test_the_fingerprint_changes_with_the_content_only(tmp_path: Path) -> None:
    path = tmp_path / "crossfade.yaml"
    source = ConfigFile(path, ENVIRON)
    missing = source.fingerprint()
    path.write_text(GOOD)
    first = source.fingerprint()
    path.touch()
    assert source.fingerprint() == first != missing
    path.write_text(GOOD + "# more\n")
    assert source.fingerprint() != first


def test_the_example_of_the_page_on_limits_is_a_config() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    backends = 'backends: {cloud: {servers: ["http://127.0.0.1:1"]}, onprem: {servers: ["http://127.0.0.1:2"]}}\n'
    settings = gateway_settings(parse_config(backends + example))
    check(settings)
    assert [limit.quota for limit in settings.routes[0].limits if isinstance(limit, Limit)] == [
        "100/minute", "500/hour", "200/minute", "20/minute",
    ]  # fmt: skip
    assert settings.callers[0].limits == (Limit("5000/day"),)
