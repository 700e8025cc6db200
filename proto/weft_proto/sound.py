"""What an AudioSpec means: windows, mel triangles, what an answer begins with. Exporter and server both ask here."""

import math

from weft_proto.ctc import least_fault
from weft_proto.languages import LanguageError, Languages, known_tag
from weft_proto.questions import decoder_asks
from weft_proto.v1 import bundle_pb2

# Hz, and channels, of a file.
MIN_RATE, MAX_RATE, MAX_CHANNELS = 4_000, 192_000, 8
# What a server takes unless its settings say otherwise.
MAX_AUDIO_BYTES = 15_728_640
MAX_AUDIO_S = 600
_FEWEST_SAMPLES = 32
# Slaney's scale is linear up to here, with 15 mels, and grows 6.4 times with 27 more above.
_LINEAR_HZ, _LINEAR_MELS = 1000.0, 15.0
_STEP = math.log(6.4) / 27


def window_samples(spec: bundle_pb2.AudioSpec) -> int:
    """Return how many samples a model hears at once."""
    return spec.hop_size * spec.num_frames


def mel_triangles(spec: bundle_pb2.AudioSpec) -> list[list[float]]:
    """Return the weights [num_mels][fft_size / 2 + 1] by which powers are summed (Slaney 1998, Auditory Toolbox)."""
    top = spec.sample_rate / 2
    last = _mels(top)
    edges = [_hertz(last * index / (spec.num_mels + 1)) for index in range(spec.num_mels + 2)]
    num_bins = spec.fft_size // 2 + 1
    bins = [top * index / (num_bins - 1) for index in range(num_bins)]
    return [[_triangle(hertz, *edges[index : index + 3]) for hertz in bins] for index in range(spec.num_mels)]


def num_timestamps(spec: bundle_pb2.AudioSpec) -> int:
    """Return how many tokens say moments: those from the window's beginning to its end, or 0."""
    return window_samples(spec) // spec.timestamp_samples + 1 if spec.HasField("first_timestamp_id") else 0


def spoken_ids(
    spec: bundle_pb2.AudioSpec, language: str, *, to_english: bool | None, timestamps: bool = False
) -> tuple[int, ...]:
    """Return what the decoder is fed behind its start token. to_english: None where no token says the task.

    Raises:
        LanguageError: the language is not listed, or is not named though there are several, or nothing is translated.
    """
    known = {each.tag.lower(): each.tag for each in spec.languages}
    tag = known_tag("language", language, known)
    ids = [each.token_id for each in spec.languages if each.tag.lower() == tag]
    if to_english and not spec.HasField("translate_id"):
        raise LanguageError("to_english", "is not for this model: it does not translate")
    task = {None: "", False: "transcribe_id", True: "translate_id"}[to_english]
    wanted = {task, "" if timestamps else "no_timestamps_id"}
    return tuple(ids + [token_id for name, token_id in _given(spec).items() if name in wanted])


def longest_prefix(manifest: bundle_pb2.BundleManifest) -> int:
    """Return how many ids a decoder is fed at most behind its start token, whatever its model takes."""
    audio = manifest.audio
    spoken = bool(audio.languages) + bool({"transcribe_id", "translate_id"} & _given(audio).keys())
    asked = manifest.text.max_source_tokens if decoder_asks(manifest.task, manifest.text) else 0
    return Languages(manifest.text).longest_prefix + spoken + audio.HasField("no_timestamps_id") + asked


def audio_fault(spec: bundle_pb2.AudioSpec, text: bundle_pb2.TextSpec) -> str | None:
    """Say what is wrong with an AudioSpec of a model whose tokens are `text`'s, or None."""
    if spec.HasField("ctc"):
        return "audio.ctc is for transcribe_ctc"
    tags = [each.tag.lower() for each in spec.languages]
    ids = [*(each.token_id for each in spec.languages), *_given(spec).values()]
    longest = bool(tags) + len(_given(spec).keys() - {"translate_id"})
    if fault := size_fault(spec):
        return f"audio: {fault}"
    faults = {
        "default_language is none of languages": spec.default_language and spec.default_language.lower() not in tags,
        "it has default_to_english without translate_id": spec.default_to_english and not spec.HasField("translate_id"),
        "it has default_without_task with default_language or default_to_english": spec.default_without_task
        and (spec.default_language or spec.default_to_english),
        "it has default_timestamps without first_timestamp_id": spec.default_timestamps
        and not spec.HasField("first_timestamp_id"),
        "languages has a tag twice, or an empty one": len(set(tags)) != len(tags) or not all(tags),
        "it has an id outside text.target_vocab_size": any(each >= text.target_vocab_size for each in ids),
        **_timestamp_faults(spec, text),
        "what answers begin with and text.max_new_tokens are more than text.max_total_tokens": ids
        and longest + text.max_new_tokens > text.max_total_tokens,
    }
    return next((f"audio: {fault}" for fault, holds in faults.items() if holds), None)


def size_fault(spec: bundle_pb2.AudioSpec) -> str | None:
    """Say what is wrong with the sizes of an AudioSpec, or None."""
    if spec.min_samples:
        return _waveform_fault(spec)
    if spec.fft_size < _FEWEST_SAMPLES or spec.fft_size % 2:
        return f"fft_size is {spec.fft_size}, not an even number of at least {_FEWEST_SAMPLES}"
    if not 0 < spec.hop_size <= spec.fft_size:
        return f"hop_size is {spec.hop_size}, not in [1, fft_size]"
    if not spec.num_positions or spec.num_frames % spec.num_positions:
        return f"num_frames is {spec.num_frames}, no multiple of num_positions, {spec.num_positions}"
    return None


def _waveform_fault(spec: bundle_pb2.AudioSpec) -> str | None:
    """Say what is wrong with the sizes of a model that reads samples and writes, or None."""
    if spec.num_mels or spec.fft_size or spec.HasField("first_timestamp_id"):
        return "it has num_mels, fft_size or first_timestamp_id beside min_samples"
    if not spec.hop_size or not spec.num_frames or spec.num_positions != spec.num_frames:
        return "with min_samples, hop_size and num_frames are needed, and num_positions is num_frames"
    return least_fault(spec)


def _timestamp_faults(spec: bundle_pb2.AudioSpec, text: bundle_pb2.TextSpec) -> dict[str, bool]:
    step, window = spec.timestamp_samples, window_samples(spec)
    if not spec.HasField("first_timestamp_id"):
        return {"it has timestamp_samples without first_timestamp_id": step > 0}
    if not step or window % step:
        return {f"timestamp_samples is {step}, and no whole number of them is the window's {window}": True}
    end = spec.first_timestamp_id + num_timestamps(spec)
    others = [*(each.token_id for each in spec.languages), *_given(spec).values(), *text.end_ids]
    return {
        "it has a timestamp outside text.target_vocab_size": end > text.target_vocab_size,
        "a timestamp is another token too": any(spec.first_timestamp_id <= each < end for each in others),
    }


def _given(spec: bundle_pb2.AudioSpec) -> dict[str, int]:
    """Return the ids that an answer may have behind its language, in their order."""
    names = ("transcribe_id", "translate_id", "no_timestamps_id")
    set_fields = {field.name for field, _ in spec.ListFields()}
    return {name: getattr(spec, name) for name in names if name in set_fields}


def _mels(hertz: float) -> float:
    if hertz < _LINEAR_HZ:
        return hertz * _LINEAR_MELS / _LINEAR_HZ
    return _LINEAR_MELS + math.log(hertz / _LINEAR_HZ) / _STEP


def _hertz(mels: float) -> float:
    if mels < _LINEAR_MELS:
        return mels * _LINEAR_HZ / _LINEAR_MELS
    return _LINEAR_HZ * math.exp((mels - _LINEAR_MELS) * _STEP)


def _triangle(hertz: float, low: float, middle: float, high: float) -> float:
    """A triangle over [low, high] whose area is 1."""
    side = min((hertz - low) / (middle - low), (high - hertz) / (high - middle))
    return max(0.0, side) * 2 / (high - low)
