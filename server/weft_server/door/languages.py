"""The languages that a request names, as what a model is given for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.languages import LanguageError
from weft_proto.tasks import TASKS
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from weft_proto.languages import Frame
    from weft_server.serving.model import Model

LANGUAGES = ("source_language", "target_language")


def frame_of(model: Model, request: Any) -> Frame:
    """Return what stands around the ids of a request. Raises InvalidRequest for languages that the model has not."""
    if TASKS[model.manifest.task].takes_language:
        try:
            return model.languages.frame(request.source_language, request.target_language)
        except LanguageError as error:
            raise InvalidRequest(error.field, str(error)) from error
    for field in LANGUAGES:
        if getattr(request, field):
            raise InvalidRequest(field, f"is for models that translate, and {model.name!r} does not")
    return model.languages.plain
