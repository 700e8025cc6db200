"""The files beside a model with a label for each moment: how it hears a recording, and what its labels say."""

from typing import Any

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.keys import NEUTRAL, USED, Only, Table, check_keys
from weft_export.converters.piece_files import read_pieces
from weft_export.converters.processor_keys import read_processor
from weft_export.converters.text.json_file import read_ids
from weft_export.converters.text.settings import CLEANS, CONFIG, OPTION_KEYS, TokenizerSettings, read_settings
from weft_export.errors import CheckpointError
from weft_export.families.conformer_ctc import ConformerCtcConfig
from weft_export.families.ctc import CtcConfig
from weft_export.families.waveform_speech import WaveformSpeechConfig
from weft_proto.bundle_rules import LIMITS, MAX_LABELS
from weft_proto.v1 import bundle_pb2

WINDOW_S = 30
"""What a bundle hears at once. A model takes any length; attention costs its square."""
_VOCABULARY = "vocab.json"
_CLASS = "Wav2Vec2CTCTokenizer"
# What the class takes unless a file says otherwise.
_TOKENS = {"pad_token": "<pad>", "word_delimiter_token": "|"}
WAVEFORM_KEYS: Table = {
    "sampling_rate": USED,
    "do_normalize": USED,
    "feature_extractor_type": Only(("Wav2Vec2FeatureExtractor",)),
    "feature_size": Only((1,)),
    # A recording has no padding: it is read alone, or beside others of its length.
    "padding_value": NEUTRAL,
    "padding_side": NEUTRAL,
    "return_attention_mask": NEUTRAL,
    "processor_class": NEUTRAL,
}
"""Of Wav2Vec2FeatureExtractor."""
CTC_KEYS: Table = {
    **OPTION_KEYS,
    **dict.fromkeys(("pad_token", "word_delimiter_token", "replace_word_delimiter_char"), USED),
    "tokenizer_class": Only((_CLASS,)),
    "target_lang": Only(advice=": the adapters of languages are not supported"),
    # They are among the labels, and say themselves.
    **dict.fromkeys(("bos_token", "eos_token", "unk_token"), NEUTRAL),
    "do_normalize": NEUTRAL,
}
"""Of Wav2Vec2CTCTokenizer."""


def sample_rate_of(hf: HfCheckpoint) -> int:
    """Return how many samples a second the model hears."""
    place, given = _processor(hf)
    rate = given.get("sampling_rate", 16_000)
    least, most = LIMITS["AudioSpec"]["sample_rate"].minimum, LIMITS["AudioSpec"]["sample_rate"].maximum or 0
    if type(rate) is not int or not least <= rate <= most:
        raise CheckpointError(f"{place}: sampling_rate is {rate!r:.40}, not in [{least:.0f}, {most:.0f}]")
    return rate


def read_waveform_keys(hf: HfCheckpoint) -> None:
    """Refuse a model that hears samples as they are, where its files say that they are normalised."""
    place, given = _processor(hf)
    check_keys(place, given, {**WAVEFORM_KEYS, "do_normalize": Only((False,))})


def waveform_audio(hf: HfCheckpoint, sizes: WaveformSpeechConfig) -> bundle_pb2.AudioSpec:
    """Return how recordings become samples that a model reads as they are."""
    return bundle_pb2.AudioSpec(
        sample_rate=sample_rate_of(hf),
        hop_size=sizes.hop_size,
        num_frames=sizes.num_frames,
        num_positions=sizes.num_frames,
        min_samples=sizes.min_samples,
    )


def read_ctc(hf: HfCheckpoint, sizes: CtcConfig | ConformerCtcConfig) -> tuple[bundle_pb2.AudioSpec, tuple[str, ...]]:
    """Return how recordings become text, and what the labels say.

    Raises:
        CheckpointError: a file is missing, or says what cannot be done. The field is named.
    """
    if isinstance(sizes, ConformerCtcConfig):
        return read_pieces(hf, sizes)
    settings = read_settings(hf.directory, None)
    hf.fields.note(*check_keys(CONFIG, settings.options, CTC_KEYS))
    if settings.flag(CLEANS, default=False):
        hf.fields.note(f"{CLEANS} is true: transformers takes spaces before marks out of a text, and answers have them")
    if (hf.directory / "language_model").exists():
        hf.fields.note("language_model is not read: answers are the likeliest labels, as without it")
    labels = _labels_of(settings, hf, sizes.num_labels)
    blank, delimiter = (str(settings.named.get(name, default)) for name, default in _TOKENS.items())
    if blank not in labels:
        raise settings.wrong(f"pad_token is {blank!r:.40}, which is the blank, and {_VOCABULARY} has no such label")
    place, given = _processor(hf)
    normalized = given.get("do_normalize", True)
    if not isinstance(normalized, bool):
        raise CheckpointError(f"{place}: do_normalize is {normalized!r:.40}, not true or false")
    space = settings.text("replace_word_delimiter_char")
    spec = bundle_pb2.CtcSpec(
        blank_id=labels.index(blank),
        word_delimiter=delimiter,
        space=" " if space is None else space,
        lower_case=settings.flag("do_lower_case", default=False),
        normalized=normalized,
        min_samples=sizes.min_samples,
    )
    audio = bundle_pb2.AudioSpec(
        sample_rate=sample_rate_of(hf),
        hop_size=sizes.hop_size,
        num_frames=sizes.num_frames,
        num_positions=sizes.num_frames,
        ctc=spec,
    )
    return audio, labels


def _processor(hf: HfCheckpoint) -> tuple[str, dict[str, Any]]:
    place, given = read_processor(hf, "feature_extractor", "audio_processor")
    hf.fields.note(*check_keys(place, given, WAVEFORM_KEYS))
    return place, given


def _labels_of(settings: TokenizerSettings, hf: HfCheckpoint, num_labels: int) -> tuple[str, ...]:
    """Return what each label says. Where the vocabulary and a token beside it have one id, it is the vocabulary."""
    path = hf.directory / _VOCABULARY
    texts = {id_: str(token) for id_, token in settings.added.items()}
    texts |= {id_: token for token, id_ in read_ids(path, MAX_LABELS).items()}
    for label in range(num_labels):
        if label not in texts:
            raise CheckpointError(f"{path} says nothing of label {label}; vocab_size of config.json is {num_labels}")
    return tuple(texts[label] for label in range(num_labels))
