"""What endpoints ask of the models that are there, without a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.v1 import common_pb2
from weft_server.errors import RequestError
from weft_server.structured_output.token_bytes import has_seams, spelling_of

if TYPE_CHECKING:
    from weft_server.models.allowed_models import AllowedModels
    from weft_server.models.registry import ModelRegistry, RegistryEntry
    from weft_server.openai_api.api_request import Spelling
    from weft_server.preprocessing.vocabulary import Vocabulary


class KnownModels:
    """Looks at a registry. Of a model that is not there it says nothing: the call that is made then does."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def task_of(self, allowed: AllowedModels, selector: common_pb2.ModelSelector) -> common_pb2.Task.ValueType:
        """Return what a model does, or TASK_UNSPECIFIED."""
        entry = self._meant(allowed, selector)
        return entry.task if entry else common_pb2.TASK_UNSPECIFIED

    def call_format_of(self, allowed: AllowedModels, selector: common_pb2.ModelSelector) -> str | None:
        """Return its Model.call_format, also while it sleeps. None: it is not there."""
        entry = self._meant(allowed, selector)
        if entry and entry.model:
            return entry.model.reader.call_format
        return entry.card.call_format if entry and entry.card else None

    def spelling_of(self, resolved: common_pb2.ResolvedModel) -> Spelling | None:
        """Return what gives the bytes of its tokens."""
        vocabulary = self._vocabulary_of(resolved)
        return spelling_of(vocabulary) if vocabulary else None

    def has_seams(self, resolved: common_pb2.ResolvedModel) -> bool:
        """Whether a token of it adds other text behind a text than where it begins one, or that is not known."""
        vocabulary = self._vocabulary_of(resolved)
        return vocabulary is None or has_seams(vocabulary)

    def _meant(self, allowed: AllowedModels, selector: common_pb2.ModelSelector) -> RegistryEntry | None:
        try:
            return self._models.find(selector, allowed)
        except RequestError:
            return None

    def _vocabulary_of(self, resolved: common_pb2.ResolvedModel) -> Vocabulary | None:
        entry = self._models.at(resolved.name, resolved.version)
        model = entry.model if entry else None
        if model is None or not model.manifest.text.target_tokenizer:
            return None
        return model.target_tokenizer.vocabulary
