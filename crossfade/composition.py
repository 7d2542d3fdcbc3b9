"""Translate the config file into the values that each room takes. The only place where their vocabularies meet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from compare.plan import Plan
from compare.policy import ImageBands, JsonRule, Kind, Margins, Policy, RuleName
from crossfade.config.backends import BackendConfig
from crossfade.config.limits import CallerConfig, ConcurrencyConfig, LimitConfig
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.mirroring import MirrorConfig, ShadowConfig
from crossfade.config.model import Config, KeepConfig, RouteConfig
from gateway.generation import check
from gateway.settings import (
    ApiCaller,
    Backend,
    BackendTls,
    Concurrency,
    Cors,
    Credential,
    HealthCheck,
    Limit,
    LimitSettings,
    Route,
    ServerRules,
    Settings,
    TlsSettings,
    TracingSettings,
)
from shadow.keeping import Bodies, KeepRule
from shadow.rule import MirrorLimits, ShadowRule, StreamRule
from shadow.slate import default_folder


class ConfigFile:
    """The config file as the gateway's source of settings (``gateway.settings.SettingsSource``)."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path, self._environ = path, environ
        self._listen: str | None = None

    def fingerprint(self) -> str:
        """Return a hash of the file's bytes: it changes with the content and with nothing else (a ConfigMap mount
        swaps links without touching times). A file that cannot be read has a fingerprint of its own."""
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError as error:
            return f"unreadable: {error.errno}"

    def load(self) -> Settings:
        """Parse and check the file. Raises ``ConfigError`` (a ``ValueError``) when it may not be used."""
        config = load_config(self._path, self._environ)
        self._listen = self._listen or config.gateway.listen
        if config.gateway.listen != self._listen:
            raise ConfigError(f"{self._path}: gateway.listen is now {config.gateway.listen}; that needs a restart")
        return gateway_settings(config)


def gateway_settings(config: Config) -> Settings:
    """Return what the gateway and the mirror need of ``config``."""
    return Settings(
        backends={name: _backend(name, backend) for name, backend in config.backends.items()},
        routes=tuple(_route(config, route) for route in config.routes),
        limits=LimitSettings(
            storage=config.limits.storage.get_secret_value(),
            strategy=config.limits.strategy,
            on_failure=config.limits.on_failure,
            timeout_s=config.limits.timeout_s,
            trusted_proxies=config.limits.trusted_proxies,
            forwarded_header=config.limits.forwarded_header,
        ),
        gateway_limits=_limits(config.limits.gateway),
        callers=tuple(_caller(name, caller) for name, caller in config.callers.items()),
        mirror=MirrorLimits(
            byte_budget_bytes=config.mirror.byte_budget_bytes,
            spool_above_bytes=config.mirror.spool_above_bytes,
            spool_budget_bytes=config.mirror.spool_budget_bytes,
            spool_dir=config.mirror.spool_dir,
            slate_dir=config.mirror.slate_dir or default_folder(),
            max_queued=config.mirror.max_queued,
            max_concurrent=config.mirror.max_concurrent,
        ),
        stream=_stream(config.mirror),
        store_url=config.store.url,
        bodies_dir=config.store.bodies,
        store_key=config.store.key,
        keep_bodies_days=config.store.keep_bodies_days,
        transport=config.gateway.transport,
        parser=config.gateway.parser,
        http2=config.gateway.http2,
        proxy=config.gateway.proxy.get_secret_value() if config.gateway.proxy else None,
        replay_budget_bytes=config.gateway.replay_budget_bytes,
        forwarded=config.gateway.forwarded,
        tracing=TracingSettings(**config.tracing.model_dump()) if config.tracing else None,
        tls=TlsSettings(**config.gateway.tls.model_dump()) if config.gateway.tls else None,
    )


def load_checked(path: Path, environ: Mapping[str, str]) -> Config:
    """Read the config file and see that the gateway can work by it. Raises ``ValueError`` for a person."""
    config = load_config(path, environ)
    try:
        check(gateway_settings(config))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def policies(config: Config) -> tuple[Policy, ...]:
    """Return what each route is judged by."""
    return tuple(_policy(config, route) for route in config.routes)


def plans(config: Config) -> Mapping[str, Plan]:
    """Return how each route may go across, by route."""
    return {route.name: _plan(route) for route in config.routes}


def _plan(route: RouteConfig) -> Plan:
    rule, shadow = route.ramp, route.shadow
    back = shadow.percent if shadow.back_percent is None else shadow.back_percent
    mirrors_back = shadow.both_ways and shadow.percent > 0 and back > 0
    return Plan(
        steps=rule.steps,
        min_stay_s=rule.min_stay_s,
        min_requests=rule.min_requests,
        alarm_after=rule.alarm_after,
        mirrors_back=mirrors_back,
        verdict_max_age_s=rule.verdict_max_age_s,
        evidence_max_age_s=rule.evidence_max_age_s,
        back_unseen=rule.on_no_evidence == "back",
    )


def _policy(config: Config, route: RouteConfig) -> Policy:
    rule = route.compare
    return Policy(
        route=route.name,
        baseline=route.baseline,
        candidate=route.candidate,
        kind=_kind(route),
        alpha=rule.alpha,
        latency_slo_s=rule.latency_slo_s,
        slo_percentile=rule.slo_percentile,
        deadline_s=max(config.backends[name].timeout_s for name in (route.baseline, route.candidate)),
        margins=Margins(
            median_ratio=rule.latency_ratio,
            errors=rule.error_margin,
            outputs=rule.mismatch_margin,
            critical=rule.critical_margin,
        ),
        min_pairs=rule.min_pairs,
        min_span_s=rule.min_span_s,
        min_coverage=rule.min_coverage,
        mirror_percent=route.shadow.percent,
        bodies=Bodies(route.keep.bodies),
        kept_matches_percent=route.keep.matches_percent,
        routes=len(config.routes),
        random_outputs=rule.random_outputs,
        json_rules=(
            *(JsonRule(path, RuleName.IGNORE) for path in rule.ignore),
            *(JsonRule(**{**each.model_dump(), "rule": RuleName(each.rule)}) for each in rule.rules),
        ),
        value_path=rule.value_path,
        min_similarity=rule.min_similarity,
        score_tolerance=rule.score_tolerance,
        image=ImageBands(**rule.image.model_dump()),
    )


def _kind(route: RouteConfig) -> Kind:
    """Return the kernel's kind. Of what is kept as hashes only, nothing but equality can be told."""
    if Bodies(route.keep.bodies) is Bodies.HASHES:
        return Kind.BYTES
    return Kind(route.compare.kind) if route.compare.kind else Kind.AUTO


def _backend(name: str, backend: BackendConfig) -> Backend:
    auth = backend.auth
    return Backend(
        name=name,
        servers=backend.servers,
        timeout_s=backend.timeout_s,
        connect_timeout_s=backend.connect_timeout_s,
        stream_max_s=backend.stream_max_s,
        credential=Credential(auth.header, auth.value.get_secret_value()) if auth else None,
        tls=BackendTls(**backend.tls.model_dump()) if backend.tls else None,
        rules=_server_rules(backend),
    )


def _server_rules(backend: BackendConfig) -> ServerRules:
    health, balancing = backend.health, backend.balancing
    return ServerRules(check=HealthCheck(**health.model_dump()) if health else None, **balancing.model_dump())


def _route(config: Config, route: RouteConfig) -> Route:
    return Route(
        name=route.name,
        path=route.match.path,
        methods=frozenset(route.match.methods),
        baseline=route.baseline,
        candidate=route.candidate,
        active=route.split,
        shadow=_shadow(route.shadow, _secret_names(config)),
        keep=_keep(route.keep),
        limits=_limits(route.limits),
        concurrency=_concurrency(route.concurrency) if route.concurrency else None,
        cost=route.cost,
        public=route.public,
        cors=Cors(route.cors.origins, route.cors.credentials) if route.cors else None,
        max_body_bytes=route.max_body_bytes,
        fallback=route.fallback,
        websocket=route.websocket,
    )


def _keep(keep: KeepConfig) -> KeepRule:
    return KeepRule(Bodies(keep.bodies), keep.matches_percent, keep.redact_json, keep.redact_form)


def _stream(mirror: MirrorConfig) -> StreamRule | None:
    url = mirror.transport.get_secret_value()
    return None if url == "in-process" else StreamRule(url, mirror.stream_max_length, mirror.stream_max_bytes)


def _limits(limits: Iterable[LimitConfig]) -> tuple[Limit, ...]:
    return tuple(Limit(limit.quota, limit.per, limit.unit, limit.strategy, limit.dry_run) for limit in limits)


def _concurrency(rule: ConcurrencyConfig) -> Concurrency:
    return Concurrency(rule.slots, rule.per, rule.name, rule.max_waiting, rule.max_wait_s, rule.dry_run)


def _caller(name: str, caller: CallerConfig) -> ApiCaller:
    routes = frozenset(caller.routes) if caller.routes is not None else None
    return ApiCaller(name, caller.keys, routes, _limits(caller.limits))


def _secret_names(config: Config) -> frozenset[str]:
    """Return what the config says is a credential: the fields that backends take theirs in, and those named as such."""
    headers = (backend.auth.header for backend in config.backends.values() if backend.auth)
    return frozenset(name.lower() for name in (*headers, *config.store.redact))


def _shadow(shadow: ShadowConfig, secret_names: frozenset[str]) -> ShadowRule:
    return ShadowRule(
        percent=shadow.percent,
        rate_per_s=shadow.rate_per_s,
        sample_by=shadow.sample_by.lower(),
        control_percent=shadow.control_percent,
        methods=frozenset(shadow.methods),
        both_ways=shadow.both_ways,
        back_percent=shadow.back_percent,
        max_body_bytes=shadow.max_body_bytes,
        preserve_host=shadow.preserve_host,
        forward_headers=frozenset(name.lower() for name in shadow.forward_headers),
        secret_names=secret_names,
    )
