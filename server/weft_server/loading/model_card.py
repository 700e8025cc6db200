"""What there is to say of a model before one asks it: its task, labels, languages, limits and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.bundle_rules import MAX_MATCHED_LABELS, precision_name
from weft_proto.sound import window_samples
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import has_token_vectors, side_of, vector_kinds
from weft_proto.v1 import model_pb2
from weft_server.requests.decoding_config import shown_default
from weft_server.requests.embed import MAX_INPUTS

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.models.model import Model


async def card_of(model: Model, config: ServerConfig) -> model_pb2.Model:
    """Return all that follows from the bundle and the settings. How the model stands is not in it."""
    card = model_pb2.Model(name=model.name, version=model.version)
    manifest, text = model.manifest, model.manifest.text
    card.task, card.family, card.description = manifest.task, manifest.family, manifest.description
    card.devices.extend(model.devices)
    card.precision = precision_name(manifest.precision)
    card.size_bytes = sum(file.size_bytes for file in manifest.files)
    card.labels.extend(manifest.labels)
    card.source_languages.extend(text.source_languages)
    card.target_languages.extend(text.target_languages)
    spoken = [language.tag for language in manifest.audio.languages]
    card.source_languages.extend(spoken)
    card.target_languages.extend(spoken)
    if manifest.audio.HasField("translate_id") and "en" not in spoken:
        card.target_languages.append("en")
    card.can_explain = model.explainer is not None
    card.can_score = model.scorer is not None or has_token_vectors(manifest)
    card.tells_timestamps = manifest.audio.HasField("first_timestamp_id")
    card.times_words = TASKS[manifest.task].labels_frames
    card.default_language = manifest.audio.default_language
    card.default_to_english = manifest.audio.default_to_english
    card.default_timestamps = manifest.audio.default_timestamps
    card.takes_adapters = bool(manifest.adapters.layers)
    card.adapters.extend(await model.adapters.names())
    card.attention_heads.extend(manifest.attention.heads)
    if manifest.attention.HasField("default_layer"):
        card.default_attention_layer = manifest.attention.default_layer
    card.prefixes.extend(text.prefixes)
    for each in text.prompts:
        side = side_of(text, each.name)
        card.prompts.add(name=each.name, text=each.text, max_tokens=side.max_tokens if side else 0)
    card.default_prompt_name, card.truncation_side = text.default_prompt_name, text.truncation_side
    card.question_forms.extend(text.question.forms)
    card.takes_messages = model.reader.takes_messages
    card.takes_pictures = model.reader.takes_pictures
    card.call_format = model.reader.call_format
    card.takes_constraints = model.grammars.takes_constraints and not TASKS[manifest.task].takes_audio
    card.dimensions, card.normalized = manifest.embedding.dimensions, manifest.embedding.normalized
    if manifest.HasField("embedding"):
        card.vector_kinds.extend(vector_kinds(manifest.embedding))
    # A context is no second text to judge.
    card.takes_pairs = text.HasField("separator_id") and not TASKS[manifest.task].takes_context
    if text.HasField("mask_id") and text.source_tokenizer:
        card.mask_token = model.source_tokenizer.vocabulary.tokens[text.mask_id]
    card.label_scoring = manifest.scoring
    card.takes_labels, card.label_text = TASKS[manifest.task].matches, manifest.matching.label_text
    card.vocab_size = text.source_vocab_size or text.target_vocab_size
    if text.max_new_tokens:
        card.decoding.CopyFrom(shown_default(manifest, model.widths))
    _set_limits(model, config, card.limits)
    return card


def _set_limits(model: Model, config: ServerConfig, limits: model_pb2.Limits) -> None:
    manifest, text = model.manifest, model.manifest.text
    limits.max_new_tokens = text.max_new_tokens
    limits.max_beams, limits.max_outputs = model.widths.max_beams, model.widths.max_outputs
    if TASKS[manifest.task].takes_prompt:
        limits.max_prompt_tokens, limits.max_total_tokens = model.reader.max_tokens, text.max_total_tokens
    else:
        limits.max_source_tokens = text.max_source_tokens
    if manifest.HasField("embedding"):
        limits.max_inputs = min(MAX_INPUTS, config.max_queued_requests)
    if manifest.HasField("matching"):
        limits.max_labels = MAX_MATCHED_LABELS
    if manifest.HasField("audio"):
        # Each window has one answer.
        limits.max_outputs = 1
        limits.max_audio_bytes, limits.max_audio_s = config.max_audio_bytes, config.max_audio_s
        limits.window_s = window_samples(manifest.audio) / manifest.audio.sample_rate
    if manifest.HasField("image"):
        limits.max_image_bytes = config.max_image_bytes
        limits.max_image_pixels = config.max_image_pixels
