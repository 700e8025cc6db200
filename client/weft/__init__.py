"""Weft's client: translate, caption, classify and generate on a Weft server.

with weft.Client("localhost:7070") as client:
    print(client.translate("we are eating bread").text)
"""

from importlib.metadata import version as _version

from weft._async_client import AsyncClient
from weft._client import Client
from weft._requests import CaptionOptions, ClassifyOptions, GenerateOptions, TranslateOptions
from weft._streams import AsyncStream, Stream
from weft._types import (
    Alignment,
    Caption,
    Classification,
    Completion,
    Decoding,
    FinishReason,
    Generation,
    Greedy,
    Health,
    LabelScore,
    Limits,
    Model,
    ModelState,
    Picture,
    ResolvedModel,
    Sampling,
    Task,
    Text,
    Timings,
    Translation,
    Usage,
)
from weft.exceptions import (
    AccessDenied,
    Cancelled,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    FieldViolation,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unavailable,
    Unsupported,
)

__version__ = _version("weft")

__all__ = [  # noqa: RUF022 - grouped as a reader looks for them
    # clients
    "AsyncClient",
    "AsyncStream",
    "Client",
    "Stream",
    # what goes in
    "CaptionOptions",
    "ClassifyOptions",
    "Decoding",
    "GenerateOptions",
    "Greedy",
    "Picture",
    "Sampling",
    "Text",
    "TranslateOptions",
    # what comes out
    "Alignment",
    "Caption",
    "Classification",
    "Completion",
    "FinishReason",
    "Generation",
    "Health",
    "LabelScore",
    "Limits",
    "Model",
    "ModelState",
    "ResolvedModel",
    "Task",
    "Timings",
    "Translation",
    "Usage",
    # what goes wrong
    "AccessDenied",
    "Cancelled",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "FieldViolation",
    "InternalError",
    "InvalidRequest",
    "NotFound",
    "Overloaded",
    "Unavailable",
    "Unsupported",
    "__version__",
]
