"""Calls as tests need them: credentials, interceptors and servers without models, and callers of all kinds."""

import asyncio
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

import weft_proto
from certificates import Authority
from weft_proto.v1 import common_pb2, model_pb2
from weft_proto.v1.methods import SERVICES
from weft_server.admission.early_admission import EarlyAdmission
from weft_server.auth.authorization import Authorization
from weft_server.auth.credentials import Credentials
from weft_server.calls.access_log import AccessLog
from weft_server.calls.call_gate import CallGate
from weft_server.calls.recent_refusals import RecentRefusals
from weft_server.config import ServerConfig
from weft_server.engine.scheduler import Scheduler
from weft_server.lifecycle.lifecycle import Lifecycle
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.rpc.grpc_server import GrpcServer
from weft_server.rpc.health import Health
from weft_server.rpc.interceptor import Interceptor
from weft_server.telemetry.metrics import Metrics
from weft_server.transport.traffic import Traffic

MAX_REQUEST_BYTES = 16 * 1024 * 1024
AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
TOKENS = """
caller   call          token-of-the-caller
scraper  metrics       token-of-the-scraper
operator admin,call    token-of-the-operator
search   call,high     token-of-the-search
signed   call          cert:signed.example.com
urgent   call,high     cert:urgent.example.com
reader   metrics       cert:reader
"""
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST_MODELS = "/weft.v1.ModelService/ListModels"


def credentials_of(metrics=None, **settings):
    """The credentials that a server with these settings has."""
    return Credentials(ServerConfig(repository="models", **settings), metrics or Metrics())


def look_twice(credentials):
    """Two looks, a change is taken at the second one."""
    for _ in range(2):
        credentials.refresh()


def interceptor_of(metrics=None, traffic=None, access_log="all", **settings):
    """The interceptor of a server with these settings."""
    access = Authorization(credentials_of(**settings))
    return Interceptor(gate_of(metrics, traffic=traffic, access_log=access_log), access, MAX_REQUEST_BYTES)


def gate_of(metrics=None, models=None, traffic=None, access_log="all", recent=None, tenant_key=None):
    """What the calls of a server pass."""
    admission = EarlyAdmission(models or ModelRegistry([]), tenant_key)
    traffic = traffic or Traffic(max_message_bytes=MAX_REQUEST_BYTES)
    return CallGate(metrics or Metrics(), admission, traffic, AccessLog(access_log), recent or RecentRefusals())


def methods():
    """The full name and the request's descriptor of every method of the contracts."""
    contracts = Path(weft_proto.__file__).parent
    files = sorted(file.relative_to(contracts) for file in contracts.glob("*/*_pb2.py"))
    modules = [import_module(f"weft_proto.{file.parent}.{file.stem}") for file in files]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    return {f"/{service.full_name}/{each.name}": each.input_type for service in services for each in service.methods}


def entry_of(name, *, full, version=1, task=common_pb2.TASK_GENERATE):
    """A version of a model that has a queue and nothing else; a full one lets nobody wait."""
    scheduler = Scheduler(1, 1, 100)
    if full:
        scheduler.reserve()
    metrics, manifest = Metrics().for_model(name, version, "t"), SimpleNamespace(task=task, graphs=())
    model = SimpleNamespace(name=name, engine=scheduler, manifest=manifest, metrics=metrics)
    return RegistryEntry(name, version, None, model_pb2.MODEL_STATE_READY, model=model)


async def _nothing(*_):
    """What a lifecycle tells is of no interest."""


@asynccontextmanager
async def served(tmp_path, *, tls=False, mutual=False, tokens=TOKENS, admin=False, entries=(), **more):
    """A gRPC server, its target, its metrics and its credentials. `admin`: that of the admin port."""
    settings = {"port": 0, "admin_port": 0, "reflection": True, **more}
    if tokens:
        settings["tokens"] = tmp_path / "tokens"
        settings["tokens"].write_text(tokens)
        settings["tokens"].chmod(0o600)
    if tls or mutual:
        settings["tls_cert"], settings["tls_key"] = SERVER.write(tmp_path)
    if mutual:
        settings["tls_client_ca"] = tmp_path / "ca.crt"
        settings["tls_client_ca"].write_bytes(AUTHORITY.certificate)
    metrics = Metrics()
    credentials = credentials_of(metrics, **settings)
    models = ModelRegistry(list(entries))
    interceptor = Interceptor(gate_of(metrics, models), Authorization(credentials), MAX_REQUEST_BYTES)
    health = Health(SERVICES)
    await health.set_model("secret", serving=True)
    config = ServerConfig(repository="models", **settings)
    lifecycle = Lifecycle(models, config, metrics, changed=_nothing, settled=_nothing, num_places=1) if admin else None
    server = GrpcServer(models, config, interceptor, health, credentials, lifecycle)
    await server.start()
    try:
        yield f"localhost:{server.port}", metrics, credentials
    finally:
        await server.stop(0)


def open_channel(target, *, authority=None, pair=None):
    """A channel of its own connections, with TLS if an authority is given."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    if authority is None:
        return grpc.aio.insecure_channel(target, options=options)
    shown = (pair.key, pair.certificate) if pair else (None, None)
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(authority, *shown), options=options)


async def ask(channel, method, data=b"", token=None):
    """(status code's name, reason) of a call, whatever its kind: it sends one message and reads none."""
    metadata = [("authorization", each) for each in ([token] if isinstance(token, str) else token or [])]
    call = channel.unary_unary(method)(data, metadata=metadata, timeout=10)
    code = await call.code()
    details = dict(await call.trailing_metadata() or ()).get("grpc-status-details-bin")
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(details).details if details else ():
        detail.Unpack(info)
    return code.name, info.reason


def run(scenario):
    """Run it, for at most a minute."""
    asyncio.run(asyncio.wait_for(scenario, 60))
