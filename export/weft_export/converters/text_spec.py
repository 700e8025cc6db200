"""The texts of a checkpoint of others: what its tokenizers take and give, and how answers are written."""

from collections.abc import Mapping
from typing import Any

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.generation import Generation
from weft_export.converters.text.languages import started
from weft_export.converters.text.settings import CLEANS
from weft_export.converters.text.side import TextSide, read_text_side
from weft_export.errors import CheckpointError
from weft_proto.languages import Languages
from weft_proto.sound import longest_prefix
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

GOLDEN_TEXT = "The house is small, and there is a garden behind it."
GOLDEN_MASKED = "The house is {}, and there is a {} behind it."
DEFAULT_NEW_TOKENS = 256
DEFAULT_QUESTION_TOKENS = 128


def read_texts(
    hf: HfCheckpoint,
    config: dict[str, Any],
    sizes: Any,
    task: common_pb2.Task.ValueType,
    files: dict[str, bytes],
    audio: bundle_pb2.AudioSpec | None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a Checkpoint's fields that are about texts, and notes; tokenizers and a chat template go into `files`.

    audio: what is heard, if the answer is to that.

    Raises:
        CheckpointError: a file is missing or not supported, or they contradict each other.
    """
    row = TASKS[task]
    by_processor = getattr(sizes, "sight", None) is not None
    side = read_text_side(hf.directory, config, _vocab_size(sizes), by_processor=by_processor)
    files.update(side.files)
    text = _text_of(hf, sizes, task, side, files)
    notes = side.notes
    if side.cleans_up and row.writes_text:
        notes += (f"{CLEANS} is true: transformers takes spaces before marks out of a text, and answers have them",)
    if text.HasField("chat") and b"<|channel|>" in files[text.chat.template]:
        from weft_export.converters.channels import NOTE, with_marks  # noqa: PLC0415 - late: for such models

        files[text.target_tokenizer] = with_marks(files[text.target_tokenizer])
        notes += (NOTE,)
    fields: dict[str, Any] = {"text": text}
    if audio is not None:
        from weft_export.converters.audio_processor import without_timestamps  # noqa: PLC0415 - late: for such models

        files[text.target_tokenizer] = without_timestamps(files[text.target_tokenizer], audio)
        # A language, a task and that no times are wanted may stand before an answer.
        text.max_new_tokens -= longest_prefix(bundle_pb2.BundleManifest(task=task, audio=audio))
    else:
        fields["golden"] = bundle_pb2.Golden(text=GOLDEN_TEXT, **_languages_to_try(text))
    if row.fills_masks:
        fields["golden"].text = GOLDEN_MASKED.replace("{}", _mask_token(text, files))
    if row.writes_text:
        most, least = _new_tokens(hf, text, audio)
        fields |= {"max_new_tokens": most, "min_new_tokens": least, "decoding": _decoding_of(hf, text)}
    return fields, notes


def _vocab_size(sizes: Any) -> int:
    size: int = (
        getattr(sizes, "source_vocab_size", None) or getattr(sizes, "vocab_size", None) or sizes.target_vocab_size
    )
    return size


def _mask_token(text: bundle_pb2.TextSpec, files: Mapping[str, bytes]) -> str:
    name = text.source_tokenizer
    token = tokenizer_of(name, files[name]).id_to_token(text.mask_id)
    assert token is not None, "the id of the mask token came from its name. This is a bug."
    return token


def _text_of(
    hf: HfCheckpoint, sizes: Any, task: common_pb2.Task.ValueType, side: TextSide, files: dict[str, bytes]
) -> bundle_pb2.TextSpec:
    row, generation = TASKS[task], hf.generation
    text = bundle_pb2.TextSpec(pad_id=next((each for each in (generation.pad_id, side.pad_id) if each is not None), 0))
    if row.reads_text:
        text.source_tokenizer = side.source_tokenizer
        text.source_vocab_size = _vocab_size(sizes)
    if not row.writes_text:
        from weft_export.converters.source_texts import put_source  # noqa: PLC0415 - late: writers have other files

        put_source(text, hf, sizes, task, side, files)
        return text
    text.target_tokenizer = side.target_tokenizer
    text.target_vocab_size = getattr(sizes, "target_vocab_size", None) or sizes.vocab_size
    text.end_ids.extend(_ends_of(hf, text.target_vocab_size))
    if row.takes_prompt:
        text.max_total_tokens = sizes.max_tokens
        text.max_new_tokens = sizes.max_tokens - 1
        if side.chat is not None:
            text.chat.CopyFrom(side.chat)
        return text
    _put_lengths(text, hf, sizes, asks=row.takes_question)
    text.start_id = _start_of(generation, text)
    said = generation.start_id if generation.says_start else None
    languages, targets = started(side.languages, side.target_languages, said)
    text.languages.extend(languages)
    text.source_languages.extend(side.source_languages)
    text.target_languages.extend(targets)
    # A model of several languages is told the one to write by this token, so each of them has its own.
    # Behind what a Whisper's answers begin with, generate() forces none.
    forced = None if row.takes_audio and not hasattr(sizes, "min_samples") else generation.forced_id
    if forced is not None and not any(each.target_prefix for each in languages):
        text.prefix_ids.append(forced)
    elif forced is not None:
        named = next((each.tag for each in languages if forced in each.target_prefix), "none of its languages")
        hf.fields.note(
            f"forced_bos_token_id is {forced}, {named}: generate() writes that where nothing else is asked for, and"
            " here a request names its target_language"
        )
    text.max_new_tokens -= Languages(text).longest_prefix
    if generation.forced_end_id is not None:
        text.forced_end_id = generation.forced_end_id
    return text


def _put_lengths(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sizes: Any, *, asks: bool) -> None:
    """Put how long a source, an answer and both may be. asks: the model takes a question."""
    text.max_total_tokens = text.max_new_tokens = sizes.max_target_tokens
    if hasattr(sizes, "max_source_tokens"):
        text.max_source_tokens = sizes.max_source_tokens
    elif asks:
        # The decoder reads it before an answer.
        words = sizes.num_words
        text.max_source_tokens = hf.max_source_tokens(words - 1, min(DEFAULT_QUESTION_TOKENS, words // 2))
        text.max_new_tokens = words - text.max_source_tokens


def _start_of(generation: Generation, text: bundle_pb2.TextSpec) -> int:
    starts = (generation.start_id, generation.bos_id, generation.pad_id)
    start = next((each for each in starts if each is not None), None)
    if start is None:
        raise CheckpointError("neither generation_config.json nor config.json says decoder_start_token_id")
    for name, token in (("decoder_start_token_id or bos_token_id", start), ("pad_token_id", text.pad_id)):
        if token >= text.target_vocab_size:
            raise CheckpointError(f"config.json: {name} is {token}, and there are {text.target_vocab_size} tokens")
    return start


def _ends_of(hf: HfCheckpoint, vocab_size: int) -> list[int]:
    ends = [token for token in hf.generation.end_ids if token < vocab_size]
    if not ends:
        raise CheckpointError("neither generation_config.json nor config.json says eos_token_id: no answer would end")
    return ends


def _languages_to_try(text: bundle_pb2.TextSpec) -> dict[str, Any]:
    """Return the languages of the golden request, where it has to name them: from English, if the model knows it."""
    sources, targets = list(text.source_languages), list(text.target_languages)
    named: dict[str, Any] = {}
    if len(sources) > 1:
        named["source_language"] = "en" if "en" in sources else sources[0]
    if len(targets) > 1:
        named["target_language"] = next(tag for tag in targets if tag != named.get("source_language", "en"))
    return named


def _new_tokens(hf: HfCheckpoint, text: bundle_pb2.TextSpec, audio: bundle_pb2.AudioSpec | None) -> tuple[int, int]:
    """Return how many tokens an answer has at most and at least, unless a request says otherwise.

    generate() counts a prefix as part of an answer. Its max_length and min_length count the start token too. Those of
    a generator count the prompt, so they are left out. Of a Whisper max_length counts new tokens alone, and min_length
    all that answers begin with.
    """
    audio = None if audio is not None and audio.min_samples else audio
    generation = hf.generation
    most, least = generation.max_new_tokens, generation.min_new_tokens
    if text.HasField("start_id"):
        counted = 1 if audio is None else 1 + _num_spoken(audio)
        most = generation.max_length - (audio is None) if most is None and generation.max_length else most
        least = generation.min_length - counted if least is None and generation.min_length else least
    prefix = Languages(text).longest_prefix
    most = max(1, min(text.max_new_tokens, (most or DEFAULT_NEW_TOKENS) - prefix))
    return most, min(most, max(0, (least or 0) - prefix))


def _num_spoken(audio: bundle_pb2.AudioSpec) -> int:
    """Return how many tokens stand behind the start of an answer to a request that says nothing."""
    longest = longest_prefix(bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSCRIBE, audio=audio))
    return longest - audio.default_timestamps


def _decoding_of(hf: HfCheckpoint, text: bundle_pb2.TextSpec) -> common_pb2.Decoding:
    """Return the settings that a request may have too. generate() passes over a suppressed id that is no token."""
    decoding = common_pb2.Decoding()
    decoding.CopyFrom(hf.generation.decoding)
    for name in ("suppressed", "suppressed_first"):
        known = [token for token in getattr(decoding, name).ids if token < text.target_vocab_size]
        decoding.ClearField(name)
        if known:
            getattr(decoding, name).ids.extend(known)
    return decoding
