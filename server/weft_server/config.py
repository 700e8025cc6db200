"""The server's settings: each field of ServerConfig is a flag, an environment variable and a line of the manual."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from weft_proto.bundle_rules import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from weft_proto.sound import MAX_AUDIO_BYTES, MAX_AUDIO_S
from weft_server.setting_types import Count, Devices, Origins, Port, Seconds, TenantKey, TenantWeights

ENV_PREFIX = "WEFT_"
MEBIBYTE = 1024 * 1024
# Hosts that nobody reaches from another machine.
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

# What protects the server. An empty one is a mistake, such as a variable that is not set: `--tokens "$TOKENS"`.
_PROTECTING = ("tls_cert", "tls_key", "tls_client_ca", "tokens")


class ConfigError(Exception):
    """A setting is missing or outside its range. The message has one line for each, with its flag and variable."""


class ServerConfig(BaseSettings):
    """Frozen. A flag wins over its environment variable, which wins over the default."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    repository: Path = Field(
        description="The model repository: a folder that holds `MODEL/VERSION/` for each bundle. Required."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on. `::` means all addresses of the machine. So does `0.0.0.0` for gRPC, which "
        "takes IPv6 with it, and for HTTP all IPv4 addresses. Of a name, such as `localhost`, each address is taken.",
    )
    port: Port = Field(7070, description="Port of gRPC. 0 takes any free port.")
    http_port: Port = Field(7071, description="Port of /metrics, /livez and /readyz. 0 takes any free port.")
    api_port: Port | None = Field(
        None,
        description="Port of calls by HTTP: curl, browsers, and clients of the Connect protocol. 0 takes any free "
        "port. By default there is none.",
    )
    cors_origins: Origins | None = Field(
        None,
        description="Origins whose pages may call by HTTP from a browser, for instance "
        "`https://a.org,http://localhost:5173`. `*` means all. By default no page may.",
    )
    console: bool = Field(
        False,
        description="Show the console at `/` of `--api-port`: a page to ask each model, and to see what it looked at. "
        "`weft up` and `make serve` have it.",
    )
    admin: bool = Field(
        False,
        description="Answer ModelAdminService on a port of its own: load, unload, swap and label models while the "
        "server runs. With `--console` and `--tokens`, the console does so too, if `--admin-host` is that of `--host`.",
    )
    admin_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on for `--admin`. Whoever reaches it may change models.",
    )
    admin_port: Port = Field(7072, description="Port of gRPC for `--admin`. 0 takes any free port.")
    watch: bool = Field(
        False,
        description="Follow the repository: load versions that come, unload those that go, and set the labels that "
        "`MODEL/labels.json` states.",
    )
    idle_unload_s: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = Field(
        0.0,
        description="Seconds after which a model that nobody asks for leaves the memory. The next request loads it, "
        "and waits for that. 0 means never.",
    )
    slots: Count = Field(
        32,
        le=1024,
        description="Decode slots of each model, divided among its lanes. "
        "A slot holds one answer of a request while it is produced, or one beam.",
    )
    max_adapters: Count = Field(
        16,
        le=1024,
        description="Adapters of each model that may be in memory. One is loaded when a request first names it, in "
        "place of the one that nobody has asked for the longest.",
    )
    lanes: int = Field(
        0,
        ge=0,
        le=256,
        description="Lanes of each model: threads that each run batches of their own. "
        "0 means one for each CPU that the server may use, or one on CUDA. "
        "With `--device cuda` each lane has a device of its own.",
    )
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="Threads that share one run of a graph (the intra-op threads of a session). "
        "0 means the CPUs that the server may use, divided by the lanes.",
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where models run. `cuda` needs the extra `gpu` in place of `server`. "
        "On it, a model with attention needs an fp16, bf16 or int4-fp16 bundle.",
    )
    cuda_device: Devices = Field(
        "0",
        description="Numbers of the CUDA devices that the server may use, counted from 0, for instance `0,1`. "
        "A model goes to the one that has the most memory left. With `--lanes 2` it goes to two of them.",
    )
    cuda_graphs: bool = Field(
        False,
        description="Capture decode steps as CUDA graphs and replay them. Only with `--device cuda`. "
        "With a paged cache, steps that also read prompts are not captured.",
    )
    cache_gb: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = Field(
        4.0,
        description="GB of a device's memory for the blocks of each model whose cache is paged. "
        "It takes no more than `--slots` sequences of the longest length could fill. Of no effect on other models.",
    )
    prefill_budget: Count = Field(
        8,
        le=1_000_000,
        description="Tokens of new requests that a step may read while a stream waits for the step. "
        "With many running sequences it may read more: 3 tokens for each 2 of them, or 1 for each 2 in a mixed run. "
        "A mixed run reads one prompt. "
        "On a CUDA device a step reads one piece of a prompt, of up to 512 tokens, or this number if it is more. "
        "A larger budget starts new requests sooner, and makes the gaps between the tokens of a stream longer.",
    )
    prefix_cache_mb: int = Field(
        0,
        ge=0,
        le=1_048_576,
        description="MiB of memory in which each model keeps beginnings of prompts, and whole sources of a translator, "
        "that it has read twice. Whoever sends them again does not wait for them, and on the CPU gets the same bits. "
        "0 means none. On a CUDA device only a paged cache keeps them, in so many MiB beside those of `--cache-gb`.",
    )
    num_speculative_tokens: int = Field(
        7,
        ge=0,
        le=7,
        description="Most tokens that a generated answer drafts from its own prompt or source, and its text, in a "
        "step, while it runs alone in its lane, or is the last one where the bundle has mixed runs. Those that are "
        "right are given at once. No answer changes by a bit: a model for which that does not hold drafts none. Only "
        "int8 bundles, on the CPU. 0 means none.",
    )
    batch_tokens: Count = Field(
        4096,
        le=10_000_000,
        description="Largest number of tokens in one batch that writes no text, padding included. "
        "A request of more tokens runs alone.",
    )
    max_batch: Count = Field(64, le=4096, description="Largest number of requests in one batch that writes no text.")
    max_queued_requests: Count = Field(
        256,
        le=1_000_000,
        description="Largest number of requests of each model that may wait. One more is refused with QUEUE_FULL. "
        "The same number bounds its requests that ask for `explain`, and a quarter of it those whose constraint is "
        "not built yet, and those whose adapter is not loaded yet.",
    )
    max_queued_tokens: Count = Field(
        65536,
        le=1_000_000_000,
        description="Largest number of input tokens of each model that may wait. A request beyond them is refused with "
        "TOKEN_BUDGET, unless no other request waits.",
    )
    tenant_key: TenantKey | None = Field(
        None,
        description="Metadata key whose value names the tenant of a call, for instance `x-tenant`. "
        "Believe it only behind a gateway that sets it. By default nobody is believed.",
    )
    tenant_weights: TenantWeights | None = Field(
        None,
        description="Shares of tenants, for instance `search=4,nightly=0.5`. Who is not named has a weight of 1. "
        "Of those who wait, the tenant goes on that has had the fewest tokens for its weight.",
    )
    max_image_bytes: Count = Field(
        MAX_IMAGE_BYTES,
        le=256 * MEBIBYTE,
        description="Largest number of bytes of one picture, as the file that is sent.",
    )
    max_image_pixels: Count = Field(
        MAX_IMAGE_PIXELS,
        le=1_000_000_000,
        description="Largest number of pixels of one picture, width times height. Checked before it is decoded.",
    )
    max_audio_bytes: Count = Field(
        MAX_AUDIO_BYTES,
        le=256 * MEBIBYTE,
        description="Largest number of bytes of one recording, as the file that is sent.",
    )
    max_audio_s: Count = Field(
        MAX_AUDIO_S,
        le=36_000,
        description="Longest recording, in seconds. Checked before it is decoded.",
    )
    max_request_bytes: Count = Field(
        16 * MEBIBYTE,
        le=1024 * MEBIBYTE,
        description="Largest number of bytes of one message that the server takes, by gRPC or by HTTP.",
    )
    max_held_bytes: Count = Field(
        256 * MEBIBYTE,
        le=1024 * 1024 * MEBIBYTE,
        description="Largest number of bytes of the messages that the server holds together. A message is held from "
        "its arrival until its call ends. One more is refused with BYTE_BUDGET, unless it is the only one.",
    )
    receive_timeout_s: Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)] = Field(
        30.0,
        description="Seconds in which a message has to come whole. Later ones are refused with MESSAGE_TOO_SLOW.",
    )
    send_timeout_s: Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)] = Field(
        30.0,
        description="Seconds in which a caller has to read an answer, or the next part of a streamed one, and one "
        "second more for each 64 KiB. The connection of one who does not is closed.",
    )
    max_connection_age_s: Seconds = Field(
        300.0,
        description="Seconds after which a client is asked to connect again, so that clients find new servers. "
        "Calls that run are finished, within an hour. 0 means never.",
    )
    max_connections: Count = Field(
        1000,
        le=1_000_000,
        description="Largest number of connections to each port of calls. One more is closed at once.",
    )
    tls_cert: Path | None = Field(
        None,
        description="File with the server's certificate, and with those between it and its authority, as PEM. With it "
        "and `--tls-key`, all ports speak TLS. These files are read again when they change.",
    )
    tls_key: Path | None = Field(
        None, description="File with the private key of that certificate, as PEM, without a passphrase."
    )
    tls_client_ca: Path | None = Field(
        None,
        description="File with certificates of authorities, as PEM. Callers then have to show a certificate that one "
        "of these has signed (mutual TLS).",
    )
    tokens: Path | None = Field(
        None,
        description="File that says who may call: a line `NAME ROLES TOKEN` for each. Without it, nobody is asked for "
        "a token. It is read again when it changes.",
    )
    load_timeout_s: float = Field(
        900.0,
        ge=1,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds in which a bundle has to be ready, from its first look to its golden answer. One that "
        "takes longer is refused. What it runs then is ended, and others load meanwhile.",
    )
    step_timeout_s: float = Field(
        60.0,
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
        description="Seconds that a step of a lane, a text, a picture or an explanation may take. What takes longer "
        "hangs: its requests end with LANE_STUCK or WORKER_STUCK, and another lane or thread takes its place.",
    )
    max_restarts: int = Field(
        10,
        ge=0,
        le=1_000_000,
        description="How many lanes and threads of a model may fail in ten minutes. With one more, the server "
        "finishes the requests of its other models, and exits with code 1.",
    )
    drain_delay_s: Seconds = Field(
        0.0,
        description="Seconds after SIGTERM in which the server says that it is not ready, and still takes requests. "
        "Load balancers notice in this time. In a cluster give 10.",
    )
    drain_timeout_s: Seconds = Field(
        30.0, description="Seconds after the drain delay in which admitted requests may finish."
    )
    reflection: bool = Field(False, description="Answer gRPC server reflection, which tools such as grpcurl ask for.")
    access_log: Literal["off", "errors", "all"] = Field(
        "errors",
        description="Which requests have a line in the log at their end: none, those that were refused or have failed, "
        "or all. No line has a text in it.",
    )
    log_format: Literal["console", "json"] = Field("console", description="`console` for people, `json` for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log events of this level and of higher ones."
    )

    @property
    def cuda_devices(self) -> list[int]:
        """The numbers of the CUDA devices, in their order."""
        return [int(number) for number in self.cuda_device.split(",")]

    @property
    def num_call_ports(self) -> int:
        """How many ports take calls: that of gRPC, that of HTTP and the admin port."""
        return 1 + (self.api_port is not None) + self.admin

    @property
    def allowed_origins(self) -> frozenset[str]:
        """The origins whose pages may call."""
        return frozenset((self.cors_origins or "").split(",")) - {""}

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each tenant that has one."""
        pairs = (each.rpartition("=") for each in (self.tenant_weights or "").split(",") if each)
        return {tenant: float(weight) for tenant, _, weight in pairs}

    def address(self, port: int, host: str | None = None) -> str:
        """Return host and port as one word, an IPv6 host in brackets (RFC 3986, section 3.2.2)."""
        host = host or self.host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Reading(NamedTuple):
    """Settings as far as they can be read, and a line for each that cannot. A field of `bad` has its default."""

    config: ServerConfig
    faults: list[str]
    bad: frozenset[str]


def read_config(**flags: Any) -> ServerConfig:
    """Return the settings from flags (None: not given), environment and defaults.

    Raises:
        ConfigError: a setting is missing, unknown or outside its range.
    """
    reading = try_config(**flags)
    if reading.faults:
        raise ConfigError("\n".join(reading.faults))
    return reading.config


def try_config(**flags: Any) -> Reading:
    """Return what `read_config` does, also if some of it is wrong: the rest can be looked at all the same."""
    # An empty flag, like an empty variable, is one that was not given, unless it protects the server.
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    empty = {name for name in _PROTECTING if _is_empty(name, flags)}
    given |= dict.fromkeys(empty)
    faults = [f"{both_names(name)}: is given and empty; leave it out to have none" for name in sorted(empty)]
    try:
        return Reading(ServerConfig(**given), faults, frozenset(empty))
    except ValidationError as error:
        items: list[dict[str, Any]] = [dict(item) for item in error.errors()]
    bad = frozenset(str(item["loc"][0]) for item in items)
    fields = ServerConfig.model_fields
    good = {name: value for name, value in given.items() if name in fields and name not in bad}
    # A flag wins over its variable, so a wrong variable is not read again. The repository has no default.
    good |= {name: Path() if fields[name].is_required() else fields[name].default for name in bad if name in fields}
    return Reading(ServerConfig(**good), [*map(_explain, items), *faults], bad | empty)


def _is_empty(field: str, flags: dict[str, Any]) -> bool:
    """Whether a setting is given as a text of nothing."""
    given = [flags[field]] if flags.get(field) is not None else _variables(field)
    return any(not str(value).strip() for value in given)


def _variables(field: str) -> list[str]:
    """The values of a field's variable. Its name is read in any case."""
    return [value for name, value in os.environ.items() if name.upper() == env_name(field)]


def flag_name(field: str) -> str:
    """Return the command-line flag of a field."""
    return "--" + field.replace("_", "-")


def env_name(field: str) -> str:
    """Return the environment variable of a field."""
    return ENV_PREFIX + field.upper()


def both_names(field: str) -> str:
    """Return flag and variable of a field, as the lines of errors name it."""
    return f"{flag_name(field)} ({env_name(field)})"


def _explain(item: dict[str, Any]) -> str:
    field = str(item["loc"][0])
    if item["type"] == "missing":  # one setting has no default
        return f"no model repository is given: `weft serve REPOSITORY`, {flag_name(field)} or {env_name(field)}"
    hint = ""
    if str(item["input"]).startswith("tcp://"):
        # Kubernetes sets <SERVICE>_PORT for every Service in the namespace, so a Service called weft collides with us.
        hint = "; this is a Kubernetes service link: set enableServiceLinks: false in the pod"
    return f"{both_names(field)}: {_sentence(item['msg'])}, not {item['input']!r}{hint}"


def _sentence(message: str) -> str:
    """Pydantic's words as the rest of a sentence."""
    message = message.removeprefix("Value error, ")
    return message[0].lower() + message[1:]
