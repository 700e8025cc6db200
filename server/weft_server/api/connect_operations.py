"""What /openapi.json says of the methods of weft.v1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool

from weft_server.api.contract_comments import comments_of
from weft_server.api.http_messages import JSON, Operation
from weft_server.api.message_schemas import reference, schemas_of

if TYPE_CHECKING:
    from weft_proto.v1.methods import Method

_STREAM = "Stream"
# "et al." ends none.
_END_OF_SENTENCE = re.compile(r"\.(?= [A-Z])")
_ERROR = "connect.Error"
_ERRORS = {
    _ERROR: {
        "type": "object",
        "description": "Why there is no answer, as the Connect protocol says it.",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "description": "gRPC's status in small letters, such as invalid_argument."},
            "message": {"type": "string", "description": "A sentence for people."},
            "details": {
                "type": "array",
                "description": "Those that gRPC sends.",
                "items": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "description": "Such as google.rpc.ErrorInfo."},
                        "value": {"type": "string", "contentEncoding": "base64"},
                        "debug": {"type": "object", "description": "The same for people."},
                    },
                },
            },
        },
    }
}
_ENVELOPES = (
    "The body is one envelope, and the response has one for each message: a byte of flags, four bytes of the message's "
    "size, the highest first, and the message. The last one has the flags 2, and an error if the stream has failed."
)
# Requests of `make serve` answers, where a demo model is for the method.
_PICTURE = {"data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="}
_SOUND = {"data": "UklGRkAAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YRwAAACAgICAgICAgICAgICAgICAgICAgICAgICAgICA"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "Translate": {"text": "we are eating bread"},
    "Caption": {"image": _PICTURE},
    "Answer": {"image": _PICTURE, "text": "what is red?"},
    "Transcribe": {"audio": _SOUND},
    "Classify": {"model": {"name": "topics"}, "text": "Open a TCP connection."},
    "Tag": {"text": "Maria Silva sent 25 euros to Lisbon on Monday."},
    "Extract": {"question": "Who sent it?", "context": "Maria Silva sent 25 euros."},
    "FillMask": {"text": "Lisbon is the [MASK] of Portugal."},
    "Generate": {"text": "Return a list of"},
    "Score": {"model": {"name": "en-es"}, "text": "we are eating bread", "targetText": "estamos comiendo pan"},
    "Embed": {"inputs": [{"text": "we are eating bread"}]},
    "Tokenize": {"model": {"name": "en-es"}, "text": "we are eating bread"},
    "Detokenize": {"model": {"name": "en-es"}, "tokenIds": [377, 219, 665]},
    "ListModels": {},
    "GetModel": {"model": {"name": "en-es"}},
    "LoadModel": {"name": "en-es"},
    "UnloadModel": {"name": "en-es", "version": 1},
    "SwapModel": {"name": "en-es"},
    "SetLabel": {"name": "en-es", "versionLabel": "stable", "version": 1},
}


def describe_method(method: Method) -> Operation:
    """Return what a method does, in the words of its contract."""
    service = descriptor_pool.Default().FindServiceByName(method.service)
    comments = comments_of(service.file.name)
    comment = comments.get(f"{method.service}.{method.name}", "")
    media_type = "application/connect+json" if method.streams else JSON
    example = EXAMPLES[method.name.removeprefix(_STREAM)]
    if method.streams:
        example = {"request": example}
    asked = {"schema": reference(method.request.DESCRIPTOR.full_name), "example": example}
    told = {"schema": reference(method.response.DESCRIPTOR.full_name)}
    about = {
        "operationId": method.name,
        "summary": _END_OF_SENTENCE.split(comment)[0].rstrip("."),
        "description": " ".join(filter(None, [comment, _ENVELOPES if method.streams else ""])),
        "requestBody": {"required": True, "content": {media_type: asked}},
        "responses": {
            "200": {"description": "Each message." if method.streams else "The answer.", "content": {media_type: told}},
            "default": {"description": "Why there is none.", "content": {JSON: {"schema": reference(_ERROR)}}},
        },
    }
    schemas = schemas_of(method.request.DESCRIPTOR, method.response.DESCRIPTOR) | _ERRORS
    return Operation(service.name, about, schemas, comments.get(method.service, ""))
