"""preprocessor_config.json and generation_config.json of a Whisper as an AudioSpec."""

import json
from typing import Any

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.generation import GENERATION_FILE
from weft_export.converters.processor_file import FILE, read_processor
from weft_export.converters.spoken_defaults import add_defaults
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_export.families.speech import STRIDE
from weft_proto.sound import num_timestamps
from weft_proto.v1 import bundle_pb2

_KIND = "WhisperFeatureExtractor"
# What follows from the others, or changes nothing.
_HARMLESS = {"chunk_length", "n_samples", "nb_max_frames", "processor_class", "padding_side", "return_attention_mask"}
# Their mel scale ends at 8 kHz whatever the rate is, and ours at half the rate.
_RATE = 16_000
_ONLY = {"sampling_rate": _RATE, "padding_value": 0, "dither": 0, "feature_extractor_type": _KIND}


def read_audio_spec(hf: HfCheckpoint) -> bundle_pb2.AudioSpec:
    """Return how recordings become energies, and what answers begin with.

    Raises:
        CheckpointError: no file says it, or it says what cannot be done. The field is named.
    """
    given = read_processor(hf, "feature_extractor")
    for name, value in given.items():
        if name in _ONLY and value != _ONLY[name]:
            raise CheckpointError(f"{FILE}: {name} is {value!r:.60}; only {_ONLY[name]!r} is supported")
        if name not in {*_ONLY, *_HARMLESS, "feature_size", "hop_length", "n_fft"}:
            raise CheckpointError(f"{FILE}: {name} is not supported")
    hop = max(1, _whole(given, "hop_length", 160))
    seconds = _whole(given, "chunk_length", 30)
    num_frames = seconds * _RATE // hop
    spec = bundle_pb2.AudioSpec(
        sample_rate=_RATE,
        num_mels=_whole(given, "feature_size", 80),
        fft_size=_whole(given, "n_fft", 400),
        hop_size=hop,
        num_frames=num_frames,
        num_positions=num_frames // STRIDE,
    )
    _add_tokens(spec, hf)
    add_defaults(spec, hf)
    return spec


def _add_tokens(spec: bundle_pb2.AudioSpec, hf: HfCheckpoint) -> None:
    """Take the tokens of languages and tasks from generation_config.json. A model of English alone has none."""
    given = read_object_if_there(hf.directory / GENERATION_FILE)
    for token, token_id in sorted(_table(given, "lang_to_id").items()):
        spec.languages.add(tag=token.strip("<|>"), token_id=token_id)
    tasks = _table(given, "task_to_id")
    if "transcribe" in tasks:
        spec.transcribe_id = tasks["transcribe"]
    if "translate" in tasks:
        spec.translate_id = tasks["translate"]
    if given.get("no_timestamps_token_id") is not None:
        spec.no_timestamps_id = _whole(given, "no_timestamps_token_id", 0)
        _add_timestamps(spec, hf, given)


def _add_timestamps(spec: bundle_pb2.AudioSpec, hf: HfCheckpoint, given: dict[str, Any]) -> None:
    """Take the tokens behind that for no moments: one for each place of the memory and one for the end."""
    first = spec.no_timestamps_id + 1
    if first + spec.num_positions < hf.fields.whole("vocab_size", 51865):
        spec.first_timestamp_id, spec.timestamp_samples = first, spec.hop_size * STRIDE
        if given.get("max_initial_timestamp_index") is not None:
            spec.max_first_timestamp = min(_whole(given, "max_initial_timestamp_index", 0), spec.num_positions)


def without_timestamps(tokenizer: bytes, spec: bundle_pb2.AudioSpec) -> bytes:
    """Return a tokenizer.json in which tokens that say moments are special, so that they are no text."""
    content = json.loads(tokenizer)
    timestamps = range(spec.first_timestamp_id, spec.first_timestamp_id + num_timestamps(spec))
    for token in content.get("added_tokens", ()):
        token["special"] |= token["id"] in timestamps
    return json.dumps(content, ensure_ascii=False).encode()


def _table(given: dict[str, Any], name: str) -> dict[str, int]:
    table = given.get(name) or {}
    if not isinstance(table, dict) or not all(isinstance(each, int) and 0 <= each < 2**31 for each in table.values()):
        raise CheckpointError(f"{GENERATION_FILE}: {name} must name token ids")
    return table


def _whole(given: dict[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise CheckpointError(f"{name} is {value!r:.60}: it must be a whole number")
    return value
