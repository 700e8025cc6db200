"""The languages that a request names, as what a model is given for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.languages import Frame, LanguageError
from weft_proto.sound import spoken_ids
from weft_proto.tasks import TASKS
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from weft_server.models.model import Model

LANGUAGES = ("source_language", "target_language")
# The fields that say of a recording what a TranscribeRequest says by these.
_SPOKEN = {"language": "source_language", "to_english": "target_language"}


def frame_of(model: Model, request: Any) -> Frame:
    """Return what stands around the ids of a request. Raises InvalidRequest for languages that the model has not."""
    if TASKS[model.manifest.task].takes_audio:
        return _spoken_frame(model, request)
    if TASKS[model.manifest.task].takes_language:
        try:
            return model.languages.frame(request.source_language, request.target_language)
        except LanguageError as error:
            raise InvalidRequest(error.field, str(error)) from error
    for field in LANGUAGES:
        if getattr(request, field):
            raise InvalidRequest(field, f"is for models that translate, and {model.name!r} does not")
    return model.languages.plain


def _spoken_frame(model: Model, request: Any) -> Frame:
    """Return what stands around the ids of a given transcription, or of its English translation."""
    to_english = bool(request.target_language)
    if to_english and request.target_language.lower() != "en":
        raise InvalidRequest("target_language", "must be empty, or en for an English translation")
    try:
        return Frame(prefix=spoken_ids(model.manifest.audio, request.source_language, to_english=to_english))
    except LanguageError as error:
        raise InvalidRequest(_SPOKEN[error.field], str(error)) from error
