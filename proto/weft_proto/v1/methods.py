"""The methods of weft.v1, a row for each, of which server, client and Envoy make all that they have for each method.

The contracts say a method's messages and whether it streams. What they cannot say stands here.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from weft_proto.v1 import (
    admin_pb2,
    answer_pb2,
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    score_pb2,
    tokenization_pb2,
    transcription_pb2,
    translation_pb2,
)

_Tasks = tuple[common_pb2.Task.ValueType, ...]
_STREAM = "Stream"
# By the file of its service: each method, with the tasks of the models that can answer it. Where a task is no help, as
# any model may that has what is asked for, there is none. None: no model is asked.
# `StreamX` is for the tasks of `X`.
_ROWS: dict[ModuleType, dict[str, _Tasks | None]] = {
    translation_pb2: {"Translate": (common_pb2.TASK_TRANSLATE,)},
    caption_pb2: {"Caption": (common_pb2.TASK_CAPTION,)},
    answer_pb2: {"Answer": (common_pb2.TASK_ANSWER,)},
    transcription_pb2: {"Transcribe": (common_pb2.TASK_TRANSCRIBE, common_pb2.TASK_TRANSCRIBE_CTC)},
    classification_pb2: {
        "Classify": (common_pb2.TASK_CLASSIFY_TEXT, common_pb2.TASK_CLASSIFY_IMAGE, common_pb2.TASK_MATCH),
        "Tag": (common_pb2.TASK_TAG,),
        "Extract": (common_pb2.TASK_EXTRACT,),
        "FillMask": (common_pb2.TASK_FILL_MASK,),
    },
    generation_pb2: {"Generate": (common_pb2.TASK_GENERATE,)},
    score_pb2: {"Score": ()},
    embedding_pb2: {"Embed": (common_pb2.TASK_EMBED_TEXT, common_pb2.TASK_EMBED_IMAGE, common_pb2.TASK_MATCH)},
    tokenization_pb2: {"Tokenize": (), "Detokenize": ()},
    model_pb2: {"ListModels": None, "GetModel": None},
    admin_pb2: {"LoadModel": None, "UnloadModel": None, "SwapModel": None, "SetLabel": None},
}


@dataclass(frozen=True)
class Method:
    """One row.

    Attributes:
        service: the full name of its service, such as weft.v1.TranslationService.
        name: as the contract has it, such as StreamTranslate. No two services have a method of one name.
        request: the class of its one request.
        response: the class of its response, or of each message of the stream.
        streams: whether it answers with a stream.
        tasks: of the models that can answer it, see the table.
        takes_names: no model is asked: a request says names and versions.
    """

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    streams: bool
    tasks: _Tasks
    takes_names: bool

    @property
    def path(self) -> str:
        """Its name on the wire."""
        return f"/{self.service}/{self.name}"

    @property
    def takes_file(self) -> bool:
        """Whether a request may hold a picture or a recording: nothing else is bytes."""
        return _holds_file(self.request.DESCRIPTOR)


def _holds_file(message: Any) -> bool:
    if any(field.type == field.TYPE_BYTES for field in message.fields):
        return True
    inside = {field.message_type for field in message.fields if field.message_type} - {message}
    return any(map(_holds_file, inside))


def method_of(described: Any, tasks: _Tasks | None) -> Method:
    """Return the row of a method, given its descriptor."""
    return Method(
        service=described.containing_service.full_name,
        name=described.name,
        request=GetMessageClass(described.input_type),
        response=GetMessageClass(described.output_type),
        streams=described.server_streaming,
        tasks=tasks or (),
        takes_names=tasks is None,
    )


# By name.
METHODS = {
    each.name: method_of(each, tasks[each.name.removeprefix(_STREAM)])
    for file, tasks in _ROWS.items()
    for service in file.DESCRIPTOR.services_by_name.values()
    for each in service.methods
}
METHOD_AT = {method.path: method for method in METHODS.values()}
# It answers at a port of its own, and who calls it needs a role of its own.
ADMIN_SERVICE = METHODS["LoadModel"].service
# Those at the port of requests.
SERVICES = tuple(dict.fromkeys(method.service for method in METHODS.values() if method.service != ADMIN_SERVICE))


def streaming(name: str) -> Method:
    """Return the streaming twin of a unary method."""
    return METHODS[f"{_STREAM}{name}"]
