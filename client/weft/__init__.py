"""Weft's client: translate, caption, classify, tag, embed and generate on a Weft server.

with weft.Client("localhost:7070") as client:
    print(client.translate("we are eating bread").text)
"""

import os as _os
from importlib.metadata import version as _version

# Read by gRPC when it is imported. It would write lines of its own on stderr, for each handshake that fails.
_os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from weft._async.admin import AsyncAdminClient
from weft._async.client import AsyncClient
from weft._async.many import AsyncMany
from weft._async.streams import AsyncStream
from weft._completions import (
    Answer,
    Caption,
    Completion,
    Generation,
    Output,
    Segment,
    Transcription,
    Translation,
    Word,
)
from weft._decoding import (
    Alternatives,
    Beams,
    Decoding,
    EarlyStopping,
    Greedy,
    LengthDecay,
    PhraseBias,
    Sampling,
)
from weft._model import Limits, Model, ModelState, Prompt, QuestionForm, TruncationSide, VectorKind
from weft._sync.admin import AdminClient
from weft._sync.client import Client
from weft._sync.many import Many
from weft._sync.streams import Stream
from weft._types import (
    Alignment,
    Explain,
    FinishReason,
    Function,
    FunctionCall,
    Health,
    LabelScoring,
    Messages,
    Picture,
    PictureColumns,
    PictureFile,
    Recording,
    ResolvedModel,
    Task,
    Text,
    Timings,
    TopToken,
    Usage,
)
from weft._verbs.classify import Classification, ClassifyOptions, LabelScore
from weft._verbs.embed import Embeddings, EmbedOptions
from weft._verbs.extract import ExtractedAnswer, Extraction, ExtractOptions
from weft._verbs.fill_mask import FilledMask, FilledMasks, Filling, FillMaskOptions
from weft._verbs.score import Score, ScoreOptions, TokenMatch
from weft._verbs.tag import Span, Tagging, TagOptions, TokenLabel
from weft._verbs.tokenization import Detokenization, DetokenizeOptions, Token, Tokenization, TokenizeOptions
from weft._verbs.writing import (
    AnswerOptions,
    CaptionOptions,
    GenerateOptions,
    TranscribeOptions,
    TranslateOptions,
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

__version__ = _version("weft-serving")

__all__ = [  # noqa: RUF022 - grouped as a reader looks for them
    # clients
    "AdminClient",
    "AsyncAdminClient",
    "AsyncClient",
    "AsyncMany",
    "AsyncStream",
    "Client",
    "Many",
    "Stream",
    # what goes in
    "Alternatives",
    "Beams",
    "AnswerOptions",
    "CaptionOptions",
    "ClassifyOptions",
    "Decoding",
    "DetokenizeOptions",
    "EarlyStopping",
    "EmbedOptions",
    "ExtractOptions",
    "FillMaskOptions",
    "Explain",
    "Function",
    "GenerateOptions",
    "Greedy",
    "LengthDecay",
    "Messages",
    "PhraseBias",
    "Picture",
    "Recording",
    "Sampling",
    "ScoreOptions",
    "TagOptions",
    "Text",
    "TokenizeOptions",
    "TranscribeOptions",
    "TranslateOptions",
    # what comes out
    "Alignment",
    "Answer",
    "Caption",
    "Classification",
    "Completion",
    "Detokenization",
    "Embeddings",
    "ExtractedAnswer",
    "Extraction",
    "FilledMask",
    "FilledMasks",
    "Filling",
    "FinishReason",
    "FunctionCall",
    "Generation",
    "Health",
    "LabelScore",
    "LabelScoring",
    "Limits",
    "Model",
    "ModelState",
    "Output",
    "PictureColumns",
    "PictureFile",
    "Prompt",
    "QuestionForm",
    "ResolvedModel",
    "Score",
    "Segment",
    "Span",
    "Tagging",
    "Task",
    "Timings",
    "Token",
    "TokenLabel",
    "TokenMatch",
    "Tokenization",
    "TopToken",
    "Transcription",
    "Translation",
    "TruncationSide",
    "Usage",
    "VectorKind",
    "Word",
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

# A name says where it is imported from, and not the file that it stands in.
for _name in __all__:
    if getattr(globals()[_name], "__module__", "").startswith("weft._"):
        globals()[_name].__module__ = __name__
