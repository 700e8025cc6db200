"""The files beside a model whose labels are pieces of words, and which reads log-mel energies: those of Parakeet."""

from pathlib import Path
from typing import Any

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.keys import NEUTRAL, USED, Only, Table, check_keys
from weft_export.converters.processor_keys import read_processor
from weft_export.converters.text.json_file import check_ids, read_object
from weft_export.converters.text.settings import CLEANS, CONFIG, OPTION_KEYS, read_settings
from weft_export.errors import CheckpointError
from weft_export.families.conformer_ctc import ConformerCtcConfig
from weft_proto.bundle_rules import LIMITS, MAX_LABELS
from weft_proto.ctc import ctc_fault
from weft_proto.v1 import bundle_pb2

_TOKENIZER = "tokenizer.json"
_CLASSES = ("ParakeetTokenizer", "ParakeetTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
# Which decoding says where a word begins, and by which character.
_DECODER, _MARK = "Metaspace", "replacement"
MEL_KEYS: Table = {
    "feature_size": USED,
    "sampling_rate": USED,
    "hop_length": USED,
    "n_fft": USED,
    "win_length": USED,
    "preemphasis": USED,
    "feature_extractor_type": Only(("ParakeetFeatureExtractor",)),
    # A recording has no padding: it is read alone, or beside others of its length.
    "padding_value": NEUTRAL,
    "padding_side": NEUTRAL,
    "return_attention_mask": NEUTRAL,
    "processor_class": NEUTRAL,
}
"""Of ParakeetFeatureExtractor."""
PIECE_KEYS: Table = {
    **OPTION_KEYS,
    "pad_token": USED,
    "tokenizer_class": Only(_CLASSES),
    # They are among the labels, and say themselves.
    **dict.fromkeys(("bos_token", "eos_token", "unk_token"), NEUTRAL),
}
"""Of ParakeetTokenizer."""


def read_mel(hf: HfCheckpoint) -> tuple[int, bundle_pb2.MelSpec]:
    """Return how many samples a second the model hears, and how it hears them.

    Raises:
        CheckpointError: the file is missing, or has a value that no bundle may have. The key is named.
    """
    place, given = read_processor(hf, "feature_extractor", "audio_processor")
    hf.fields.note(*check_keys(place, given, MEL_KEYS))
    defaults = {"feature_size": 80, "n_fft": 512, "win_length": 400, "hop_length": 160}
    ours = {"feature_size": "num_mels", "n_fft": "fft_size", "win_length": "window_size", "hop_length": "hop_size"}
    whole = {ours[key]: _whole(place, given, key, default, ours[key]) for key, default in defaults.items()}
    preemphasis = given.get("preemphasis", 0.97) or 0.0
    if type(preemphasis) not in (int, float) or not 0 <= preemphasis <= 1:
        raise CheckpointError(f"{place}: preemphasis is {preemphasis!r:.40}, not in [0, 1]")
    return _rate(place, given), bundle_pb2.MelSpec(**whole, preemphasis=preemphasis)


def read_pieces(hf: HfCheckpoint, sizes: ConformerCtcConfig) -> tuple[bundle_pb2.AudioSpec, tuple[str, ...]]:
    """Return how recordings become text, and what the labels say.

    Raises:
        CheckpointError: a file is missing, or says what cannot be done. The field is named.
    """
    path = hf.directory / _TOKENIZER
    tokenizer = read_object(path)
    settings = read_settings(hf.directory, tokenizer)
    hf.fields.note(*check_keys(CONFIG, settings.options, PIECE_KEYS))
    if settings.flag(CLEANS, default=False):
        hf.fields.note(f"{CLEANS} is true: transformers takes spaces before marks out of a text, and answers have them")
    model = tokenizer.get("model")
    vocabulary = check_ids(path, model.get("vocab") if isinstance(model, dict) else None, MAX_LABELS)
    texts = {index: token for token, index in vocabulary.items()}
    texts |= _added(path, tokenizer.get("added_tokens"))
    missing = next((label for label in range(sizes.num_labels) if label not in texts), None)
    if missing is not None:
        raise CheckpointError(
            f"{path} says nothing of label {missing}; vocab_size of config.json is {sizes.num_labels}"
        )
    labels = tuple(texts[label] for label in range(sizes.num_labels))
    blank = settings.named.get("pad_token")
    if blank is None or str(blank) not in labels:
        raise settings.wrong(f"pad_token is {blank!r:.40}, which is the blank, and {_TOKENIZER} has no such label")
    sample_rate, mel = read_mel(hf)
    audio = bundle_pb2.AudioSpec(
        sample_rate=sample_rate,
        hop_size=sizes.hop_size,
        num_frames=sizes.num_frames,
        num_positions=sizes.num_frames,
        ctc=bundle_pb2.CtcSpec(
            blank_id=labels.index(str(blank)),
            space=" ",
            min_samples=sizes.min_samples,
            word_start=_word_start(path, tokenizer.get("decoder")),
            mel=mel,
        ),
    )
    if fault := ctc_fault(audio, sizes.num_labels):
        raise CheckpointError(f"n_fft, win_length, hop_length and subsampling_factor do not go together: {fault}")
    return audio, labels


def _added(path: Path, given: Any) -> dict[int, str]:
    tokens = given if isinstance(given, list) else []
    if not all(isinstance(each, dict) and isinstance(each.get("content"), str) for each in tokens):
        raise CheckpointError(f"{path}: added_tokens has an entry without a text")
    return {
        index: text
        for text, index in check_ids(path, {each["content"]: each.get("id") for each in tokens}, MAX_LABELS).items()
    }


def _word_start(path: Path, decoder: Any) -> str:
    """Return what pieces begin with that begin a word."""
    kind = decoder.get("type") if isinstance(decoder, dict) else None
    mark = decoder.get(_MARK) if isinstance(decoder, dict) else None
    if kind != _DECODER or not isinstance(mark, str) or not mark:
        raise CheckpointError(f"{path}: its decoder is {kind!r:.40}, and only {_DECODER} can be followed")
    if decoder.get("prepend_scheme") == "never":
        raise CheckpointError(f"{path}: prepend_scheme of its decoder is 'never', which cannot be followed")
    return mark


def _rate(place: str, given: dict[str, Any]) -> int:
    rate, limit = given.get("sampling_rate", 16_000), LIMITS["AudioSpec"]["sample_rate"]
    if type(rate) is not int or not limit.minimum <= rate <= (limit.maximum or rate):
        raise CheckpointError(
            f"{place}: sampling_rate is {rate!r:.40}, not in [{limit.minimum:.0f}, {limit.maximum:.0f}]"
        )
    return rate


def _whole(place: str, given: dict[str, Any], key: str, default: int, name: str) -> int:
    value, limit = given.get(key, default), LIMITS["MelSpec"][name]
    if type(value) is not int or not limit.minimum <= value <= (limit.maximum or value):
        raise CheckpointError(f"{place}: {key} is {value!r:.40}, not in [{limit.minimum:.0f}, {limit.maximum:.0f}]")
    return value
