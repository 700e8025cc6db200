"""The service that tells which models there are and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.tasks import TASKS
from weft_proto.v1 import model_pb2, model_pb2_grpc
from weft_server.serving.call import CALL
from weft_server.serving.decoding import shown_default

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.serving.models import Entry, Models


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """weft.v1.ModelService."""

    def __init__(self, models: Models, config: ServerConfig) -> None:
        self._models, self._config = models, config

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the proto's name and signature
        """Answer with every entry."""
        CALL.get().name("")
        return model_pb2.ListModelsResponse(models=[self._model_proto(entry) for entry in self._models.entries])

    async def GetModel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the proto's name and signature
        """Answer with one entry."""
        CALL.get().name("")
        return model_pb2.GetModelResponse(model=self._model_proto(self._models.find(request.model)))

    def _model_proto(self, entry: Entry) -> model_pb2.Model:
        proto = model_pb2.Model(name=entry.name, version=entry.version, state=entry.state, error=entry.error)
        if entry.model is None:
            return proto
        manifest, text = entry.model.manifest, entry.model.manifest.text
        proto.task, proto.family, proto.description = manifest.task, manifest.family, manifest.description
        proto.labels.extend(manifest.labels)
        proto.source_languages.extend(text.source_languages)
        proto.target_languages.extend(text.target_languages)
        proto.can_explain = entry.model.explainer is not None
        proto.can_score = entry.model.scorer is not None
        proto.attention_heads.extend(manifest.attention.heads)
        if manifest.attention.HasField("default_layer"):
            proto.default_attention_layer = manifest.attention.default_layer
        proto.prefixes.extend(text.prefixes)
        proto.takes_messages = entry.model.reader.takes_messages
        proto.takes_constraints = entry.model.grammars.takes_constraints
        proto.vocab_size = text.source_vocab_size or text.target_vocab_size
        if text.max_new_tokens:
            proto.decoding.CopyFrom(shown_default(manifest, entry.model.widths))
        self._set_limits(entry, proto.limits)
        return proto

    def _set_limits(self, entry: Entry, limits: model_pb2.Limits) -> None:
        assert entry.model is not None
        manifest, text = entry.model.manifest, entry.model.manifest.text
        limits.max_new_tokens = text.max_new_tokens
        limits.max_beams, limits.max_outputs = entry.model.widths.max_beams, entry.model.widths.max_outputs
        if TASKS[manifest.task].takes_prompt:
            limits.max_prompt_tokens, limits.max_total_tokens = entry.model.reader.max_tokens, text.max_total_tokens
        else:
            limits.max_source_tokens = text.max_source_tokens
        if manifest.HasField("image"):
            limits.max_image_bytes = self._config.max_image_bytes
            limits.max_image_pixels = self._config.max_image_pixels
