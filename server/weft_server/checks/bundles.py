"""Whether each bundle of a repository can be served, as far as that can be said without opening its graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.tasks import TASKS
from weft_server.bundle.adapter import adapters_home, adapters_of, load_adapter
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.bundle.repository import Candidate, RepositoryError, scan_repository
from weft_server.checks.finding import ERROR, OK, WARNING, Finding, gigabytes
from weft_server.config import ConfigError, flag_name
from weft_server.errors import BundleError
from weft_server.loading.build import sizes_of, widths_of
from weft_server.loading.memory_check import MemoryNeed, memory_need_of
from weft_server.models.placement import Placement
from weft_server.requests.decoding_config import verify_default
from weft_server.runtime.device import devices_of, verify_adapters, verify_caches, verify_precision
from weft_server.runtime.memory import free_memory
from weft_server.runtime.session import verify_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.config import Reading, ServerConfig
    from weft_server.runtime.device import Device


def look_at_bundles(reading: Reading) -> Iterator[Finding]:
    """Say of each bundle whether it is sound, and of all whether they fit. Takes as long as hashing all their files.

    Nothing is said where the settings leave no repository to look at, or no device to serve on.
    """
    config = reading.config
    if "repository" in reading.bad:
        return
    try:
        devices = devices_of(config)
        scan = scan_repository(config.repository)
    except (RepositoryError, ConfigError):
        return
    yield from (Finding(WARNING, "repository", oddity) for oddity in scan.oddities)
    bundles = []
    for candidate in scan.candidates:
        try:
            bundle = _verified(candidate, config, devices[0])
        except BundleError as error:
            yield Finding(ERROR, "bundle", f"{candidate.directory}: {error}")
            continue
        bundles.append(bundle)
        yield Finding(OK, "bundle", f"{bundle.name} version {bundle.version}: {TASKS[bundle.manifest.task].name}")
        yield from _look_at_adapters(bundle)
    if config.device == "cpu" and bundles:
        yield look_at_room([memory_need_of(bundle, config) for bundle in bundles])
    elif bundles:
        yield from _look_at_places(bundles, config, devices)


def _verified(candidate: Candidate, config: ServerConfig, device: Device) -> Bundle:
    """Return a bundle that loading would not refuse before it opens a graph. Raises BundleError."""
    bundle = load_bundle(candidate.directory)
    manifest = bundle.manifest
    verify_caches(manifest, device)
    verify_adapters(manifest, device)
    if TASKS[manifest.task].writes_text:
        verify_default(manifest, widths_of(manifest, config))
    verify_precision(manifest.precision, device)
    return bundle


def _look_at_adapters(bundle: Bundle) -> Iterator[Finding]:
    """Say which adapters would be refused when a request names them. The server starts without them."""
    for name in adapters_of(bundle):
        directory = adapters_home(bundle) / name
        try:
            load_adapter(directory, bundle)
        except BundleError as error:
            yield Finding(WARNING, "adapter", f"{directory}: {error}", "export it again, by weft export-adapter")


def look_at_room(rooms: list[MemoryNeed]) -> Finding:
    """Whether all models fit together. The server refuses each that does not fit beside those before it."""
    at_once, full = map(sum, zip(*rooms, strict=True))
    free = free_memory()
    says = f"the models take {gigabytes(at_once)} at once, and {gigabytes(full)} with all slots and adapters full"
    if free is None:
        return Finding(OK, "room", says)
    says += f"; {gigabytes(free)} are free"
    if full <= free:
        return Finding(OK, "room", says)
    return Finding(ERROR if at_once > free else WARNING, "room", says, f"a smaller {flag_name('slots')} takes less")


def _look_at_places(bundles: list[Bundle], config: ServerConfig, devices: list[Device]) -> Iterator[Finding]:
    """Place all models as the server would. Nothing is said where a device cannot be opened: that has been said."""
    try:
        for device in devices:
            verify_device(device)
    except ConfigError:
        return
    placement = Placement(devices)
    for bundle in bundles:
        try:
            claim = placement.claim(bundle.name, sizes_of(bundle, config, devices[0]))
        except BundleError as error:
            yield Finding(ERROR, "room", f"{bundle.name} version {bundle.version}: {error}")
            continue
        names = ", ".join(device.name for device in claim.devices)
        yield Finding(OK, "room", f"{bundle.name} version {bundle.version} goes to {names}")
    for number, num_bytes in placement.claimed().items():
        if not num_bytes:
            mend = f"{flag_name('lanes')} {len(devices)} gives each model a lane on each of {len(devices)} devices"
            yield Finding(WARNING, "room", f"no model goes to cuda:{number}", mend)
