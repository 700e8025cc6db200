"""Which settings keep a server from serving, all of them at once. A new check is a function and a line of CHECKS."""

from __future__ import annotations

import difflib
import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from weft_server.auth.credentials import Credentials
from weft_server.bundle.repository import RepositoryError, scan_repository
from weft_server.checks.finding import ERROR, OK, WARNING, Finding, gigabytes
from weft_server.checks.listening import (
    look_at_admin_port,
    look_at_all_ports,
    look_at_api_port,
    look_at_grpc_port,
    look_at_host,
    look_at_http_port,
)
from weft_server.checks.open_files import look_at_open_files
from weft_server.config import ENV_PREFIX, ConfigError, ServerConfig, both_names, env_name
from weft_server.lifecycle.labels_file import read_labels, restrict
from weft_server.runtime.cpus import cpu_quota, share_cpus
from weft_server.runtime.device import devices_of, verify_build
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.tracing import complaints, wish_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.config import Reading

_INSTALL = "pip install 'weft-serving[server]' (or [gpu])"
# Nearly the name of the server's own file of tokens.
_CLIENTS_TOKEN = "WEFT_TOKEN"  # noqa: S105 - a variable's name
# A certificate that ends sooner than this is told of, in days. Those that are renewed by themselves last for 45 or 90.
_SOON = 14
_DAY_S = 86_400


class Check(NamedTuple):
    """A look at some settings. It is left out while one of them cannot be read."""

    fields: tuple[str, ...]
    look: Callable[[ServerConfig], Iterator[Finding]]


def look_at_settings(reading: Reading) -> list[Finding]:
    """Return what there is to say of settings before a server starts with them. It takes milliseconds.

    Faults of a field, such as a number out of range, come first.
    """
    findings = [Finding(ERROR, "settings", fault) for fault in reading.faults]
    for check in CHECKS:
        if not reading.bad.intersection(check.fields):
            findings += check.look(reading.config)
    return findings


def look_at_names(_: ServerConfig) -> Iterator[Finding]:
    """Warn of a variable that is nearly one of ours. Others that begin as ours do are Kubernetes' or the client's."""
    ours = {env_name(field) for field in ServerConfig.model_fields}
    for name in sorted(os.environ):
        near = difflib.get_close_matches(name, ours, 1, 0.85) if name.startswith(ENV_PREFIX) else []
        if near and name not in ours | {_CLIENTS_TOKEN}:
            yield Finding(WARNING, "settings", f"{name} is no setting, and is not read", f"{near[0]} is one")


def look_at_repository(config: ServerConfig) -> Iterator[Finding]:
    """Refuse a repository that cannot be read, in which nothing may be a bundle, or that states labels wrongly."""
    try:
        candidates = scan_repository(config.repository).candidates
        stated = {name: read_labels(config.repository / name) for name in {each.name for each in candidates}}
    except RepositoryError as error:
        yield Finding(ERROR, "repository", f"{both_names('repository')}: {error}")
        return
    for name, labels in sorted(stated.items()):
        if labels and labels != restrict(labels, [each.version for each in candidates if each.name == name]):
            yield Finding(WARNING, "repository", f"the labels of model {name} name versions that are not there")
    yield Finding(OK, "repository", f"{config.repository}, models: {len(stated)}, versions: {len(candidates)}")


def look_at_device(config: ServerConfig) -> Iterator[Finding]:
    """Refuse devices that are not there, or that other settings do not fit."""
    try:
        devices = devices_of(config)
        verify_build(devices[0])
    except ConfigError as error:
        yield from (Finding(ERROR, "device", line) for line in str(error).splitlines())
        return
    if config.device == "cpu":
        missing = [name for name in ("numpy", "onnxruntime") if not find_spec(name)]
        yield from (Finding(ERROR, "device", f"{name} is not installed", _INSTALL) for name in missing)
        if not missing:
            yield Finding(OK, "device", "cpu")
        return
    from weft_server.runtime.cudart import free_on  # noqa: PLC0415 - late: `weft up` waits, and the CPU needs neither
    from weft_server.runtime.session import verify_device  # noqa: PLC0415 - same

    for device in devices:
        try:
            verify_device(device)
        except ConfigError as error:
            yield Finding(ERROR, "device", str(error))
            continue
        free = free_on(device)
        yield Finding(OK, "device", device.name if free is None else f"{device.name}, {gigabytes(free)} are free")


def look_at_threads(config: ServerConfig) -> Iterator[Finding]:
    """Warn of more threads than CPUs: those that spin for each other would wait for their turns."""
    quota = cpu_quota()
    lanes, threads = share_cpus(config.lanes, config.threads, quota)
    says = f"lanes: {lanes}, threads of each: {threads}, CPUs: {quota:g}"
    if config.device == "cpu" and lanes * threads > max(1.0, quota):
        names = f"{both_names('lanes')}, {both_names('threads')}"
        yield Finding(WARNING, "threads", f"{names}: more threads than CPUs: {says}", "leave out both")
    else:
        yield Finding(OK, "threads", says)


def look_at_credentials(config: ServerConfig) -> Iterator[Finding]:
    """Refuse files that cannot be used. Warn of what others may read, of plain text, and of a certificate's time."""
    try:
        credentials = Credentials(config, Metrics())
    except ConfigError as error:
        yield from (Finding(ERROR, "credentials", line) for line in str(error).splitlines())
        return
    yield from (Finding(WARNING, "credentials", oddity) for oddity in credentials.oddities())
    if credentials.certificates and credentials.certificates.expires:
        yield from _look_at_end(credentials.certificates.expires)
    speaks = "TLS" if credentials.certificates else "plain text"
    asks = "certificates" if credentials.shows_certificates else ""
    asks = " and ".join(filter(None, (asks, "tokens" if credentials.tokens else ""))) or "nothing"
    yield Finding(OK, "credentials", f"speaks {speaks}, asks callers for {asks}")


def _look_at_end(expires: float) -> Iterator[Finding]:
    """Say when the certificate ends. That it has ended is one of the oddities."""
    days = (expires - time.time()) / _DAY_S
    says = f"the certificate ends on {time.strftime('%Y-%m-%d', time.gmtime(expires))}"
    if days > _SOON:
        yield Finding(OK, "credentials", says)
    elif days > 0:
        says = f"{both_names('tls_cert')}: {says}, days left: {int(days)}"
        yield Finding(WARNING, "credentials", says, "renew it: a running server takes the new file by itself")


def look_at_tracing(_: ServerConfig) -> Iterator[Finding]:
    """Warn where traces are asked for, and will not be sent, or not as they were asked for."""
    wish = wish_of(os.environ)
    if wish.why_not:
        yield Finding(WARNING, "traces", f"traces are not sent: {wish.why_not}", wish.mend)
    elif wish.traces:
        said = complaints(os.environ)
        yield from (Finding(WARNING, "traces", line) for line in said)
        if not said:
            yield Finding(OK, "traces", "are sent by OTLP")


CHECKS = (
    Check((), look_at_names),
    Check(("repository",), look_at_repository),
    Check(("host",), look_at_host),
    Check(("host", "port"), look_at_grpc_port),
    Check(("host", "http_port"), look_at_http_port),
    Check(("host", "api_port", "cors_origins", "console"), look_at_api_port),
    Check(("port", "http_port", "api_port", "admin_port"), look_at_all_ports),
    Check(
        ("host", "tls_cert", "tls_key", "tls_client_ca", "tokens", "tenant_key", "tenant_weights"), look_at_credentials
    ),
    Check(("admin", "admin_host", "admin_port", "tokens"), look_at_admin_port),
    Check(("device", "cuda_device", "cuda_graphs", "lanes"), look_at_device),
    Check(("device", "lanes", "threads"), look_at_threads),
    Check(("admin", "max_connections"), look_at_open_files),
    Check((), look_at_tracing),
)
