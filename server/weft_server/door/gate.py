"""Refuses calls before their message is read, because the model that they are for lets no more requests wait.

Whoever reads, parses and then refuses a message has done most of the work of an answer. In a flood that is what the
machine would be busy with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2
from weft_server.errors import Overloaded

if TYPE_CHECKING:
    from weft_server.serving.call import Call
    from weft_server.serving.model import Model
    from weft_server.serving.models import Models

# Metadata that names the model which the message names too. Without it, a call can be judged before its message is
# read only where one model alone is for it.
MODEL_KEY = "weft-model"
_TASKS: dict[str, tuple[common_pb2.Task.ValueType, ...]] = {
    "/weft.v1.TranslationService/Translate": (common_pb2.TASK_TRANSLATE,),
    "/weft.v1.TranslationService/StreamTranslate": (common_pb2.TASK_TRANSLATE,),
    "/weft.v1.CaptionService/Caption": (common_pb2.TASK_CAPTION,),
    "/weft.v1.CaptionService/StreamCaption": (common_pb2.TASK_CAPTION,),
    "/weft.v1.GenerationService/Generate": (common_pb2.TASK_GENERATE,),
    "/weft.v1.GenerationService/StreamGenerate": (common_pb2.TASK_GENERATE,),
    "/weft.v1.ClassificationService/Classify": (common_pb2.TASK_CLASSIFY_TEXT, common_pb2.TASK_CLASSIFY_IMAGE),
    "/weft.v1.ClassificationService/Tag": (common_pb2.TASK_TAG,),
}


class Gate:
    """Looks at the models, and keeps nothing."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def refusal(self, call: Call, details: Any) -> Overloaded | None:
        """Return why a call would be refused whatever its message says, or None if that is not known yet.

        A call that is refused is counted under its model.
        """
        tasks = _TASKS.get(details.method)
        if tasks is None:
            return None
        named = next((value for key, value in details.invocation_metadata if key == MODEL_KEY), "")
        refusal = None
        for model in self._meant(tasks, named):
            try:
                model.engine.check_open()
            except Overloaded as error:
                refusal = error
                call.metrics = model.metrics
            else:
                return None
        return refusal

    def _meant(self, tasks: tuple[common_pb2.Task.ValueType, ...], named: str) -> list[Model]:
        """The versions of the model that a call means, as far as they can answer. Of several models none."""
        able = [entry.model for entry in self._models.entries if entry.model and named in ("", entry.name)]
        models = [model for model in able if model.manifest.task in tasks]
        return models if len({model.name for model in models}) == 1 else []
