"""The server's settings: each field of ServerConfig is a flag, an environment variable and a line of the manual."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from weft_proto.bundle_rules import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS

ENV_PREFIX = "WEFT_"
MEBIBYTE = 1024 * 1024

Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]


class ConfigError(Exception):
    """A setting is missing or outside its range; the message has one line for each and names flag and variable."""


class ServerConfig(BaseSettings):
    """Frozen. A flag wins over its environment variable, which wins over the default."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    repository: Path = Field(description="Model repository: the folder that holds `<model>/<version>/`. Required.")
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; `0.0.0.0` for all of IPv4, `::` for IPv6 as well."
    )
    port: Port = Field(7070, description="Port of gRPC; 0 takes a free one.")
    http_port: Port = Field(7071, description="Port of /metrics, /livez and /readyz; 0 takes a free one.")
    slots: Count = Field(
        32, le=1024, description="Decode slots of each model, over all its lanes: how many run at once."
    )
    lanes: int = Field(
        0,
        ge=0,
        le=256,
        description="Engine lanes of each model; 0: one for each CPU of the quota, or for the CUDA device.",
    )
    threads: int = Field(0, ge=0, le=256, description="Intra-op threads of each session; 0: the quota over the lanes.")
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where models run. `cuda` needs the `gpu` extra; of models that attend, fp16 or bf16 bundles.",
    )
    cuda_device: int = Field(0, ge=0, le=63, description="Which CUDA device, counted from 0.")
    cuda_graphs: bool = Field(False, description="Capture decode steps on a CUDA device as graphs and replay them.")
    prefill_budget: Count = Field(
        8,
        le=1_000_000,
        description="Tokens of encode and prefill work in a step that a stream waits for; 3 for each 2 rows, if more. "
        "In mixed runs 1 for each 2 rows, and of one prompt in a step.",
    )
    batch_tokens: Count = Field(
        4096, le=10_000_000, description="Tokens of one classification batch, padding included."
    )
    max_batch: Count = Field(64, le=4096, description="Requests of one classification batch.")
    max_queued_requests: Count = Field(
        256, le=1_000_000, description="Requests of each model that may wait; one more is refused with QUEUE_FULL."
    )
    max_queued_tokens: Count = Field(
        65536,
        le=1_000_000_000,
        description="Tokens of each model that may wait; one more is refused with TOKEN_BUDGET.",
    )
    max_image_bytes: Count = Field(MAX_IMAGE_BYTES, le=256 * MEBIBYTE, description="Bytes of one encoded image.")
    max_image_pixels: Count = Field(
        MAX_IMAGE_PIXELS, le=1_000_000_000, description="Width times height of one image, checked before it is decoded."
    )
    max_request_bytes: Count = Field(16 * MEBIBYTE, le=1024 * MEBIBYTE, description="Bytes of one gRPC message.")
    max_connection_age_s: Seconds = Field(
        300.0,
        description="Seconds after which a connection is asked to make way, so clients find new servers; 0: never.",
    )
    drain_delay_s: Seconds = Field(
        0.0, description="After SIGTERM, seconds not ready but still serving, until balancers notice; 10 in a cluster."
    )
    drain_timeout_s: Seconds = Field(30.0, description="Seconds that admitted requests get to finish after the delay.")
    reflection: bool = Field(False, description="Answer gRPC server reflection, for grpcurl and the like.")
    log_format: Literal["console", "json"] = Field("console", description="`console` for people, `json` for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe event to log.")

    def address(self, port: int) -> str:
        """Return host and port as one word, an IPv6 host in brackets (RFC 3986, section 3.2.2)."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def read_config(**flags: Any) -> ServerConfig:
    """Return the settings from flags (None: not given), environment and defaults.

    Raises:
        ConfigError: a setting is missing, unknown or outside its range.
    """
    try:
        # An empty flag, like an empty variable, is one that was not given.
        return ServerConfig(**{name: value for name, value in flags.items() if value not in (None, "")})
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(dict(item)) for item in error.errors())) from None


def flag_name(field: str) -> str:
    """Return the command-line flag of a field."""
    return "--" + field.replace("_", "-")


def env_name(field: str) -> str:
    """Return the environment variable of a field."""
    return ENV_PREFIX + field.upper()


def _explain(item: dict[str, Any]) -> str:
    field = str(item["loc"][0])
    names = f"{flag_name(field)} ({env_name(field)})"
    if item["type"] == "missing":  # one setting has no default
        return f"no model repository is given: `weft serve REPOSITORY`, {flag_name(field)} or {env_name(field)}"
    hint = ""
    if str(item["input"]).startswith("tcp://"):
        # Kubernetes sets <SERVICE>_PORT for every Service in the namespace, so a Service called weft collides with us.
        hint = "; this is a Kubernetes service link: set enableServiceLinks: false in the pod"
    return f"{names}: {item['msg'][0].lower()}{item['msg'][1:]}, not {item['input']!r}{hint}"
