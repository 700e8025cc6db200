"""A checkpoint beside its weights: texts, pictures, labels, and a request to try."""

from collections.abc import Mapping
from typing import Any

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.golden_requests import fitting, made_picture, made_sound
from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.audio_processor import read_audio_spec, without_timestamps
from weft_export.converters.converter import DEFAULT_LABEL_TEXT, Converter, HfCheckpoint
from weft_export.converters.lengths import truncation_side
from weft_export.converters.pairs import separator_of, takes_pairs
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.prompts import OF_EMBEDDERS, read_prompts
from weft_export.converters.sentence_files import with_lower_case
from weft_export.converters.text.languages import started
from weft_export.converters.text.option_keys import CLEANS
from weft_export.converters.text.side import TextSide, read_text_side
from weft_export.errors import CheckpointError
from weft_export.families.classifier import Classifier
from weft_export.families.registry import family_of
from weft_export.families.writer import Writer
from weft_proto.bundle_rules import EXTRACT_LABELS, MAX_LABELS
from weft_proto.languages import Languages
from weft_proto.sound import longest_prefix
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

GOLDEN_PICTURE = "golden.png"
GOLDEN_SOUND = "golden.wav"
GOLDEN_LABELS = ("a house", "a pattern of coloured squares", "nothing")
GOLDEN_TEXT = "The house is small, and there is a garden behind it."
GOLDEN_MASKED = "The house is {}, and there is a {} behind it."
DEFAULT_NEW_TOKENS = 256


def checkpoint_of(
    hf: HfCheckpoint, config: dict[str, Any], converter: Converter, shell: Writer | Classifier
) -> tuple[Checkpoint, tuple[str, ...]]:
    """Read tokenizers, image processors and labels of a directory; the checkpoint of them and of a model, and notes.

    Raises:
        CheckpointError: one is missing or not supported, or they contradict each other.
    """
    task, sizes = family_of(converter.family).task, shell.config
    row = TASKS[task]
    files: dict[str, bytes] = {}
    text = image = audio = None
    notes: tuple[str, ...] = ()
    if row.has_text:
        of_texts = sizes.texts if row.matches else sizes
        side = read_text_side(hf.directory, config, _vocab_size(of_texts))
        files.update(side.files)
        if task == common_pb2.TASK_EMBED_TEXT or _judges(hf, of_texts, task):
            name = side.source_tokenizer
            files[name] = with_lower_case(hf.directory, files[name])
        text = _text_of(hf, of_texts, task, side)
        notes = side.notes
        if side.cleans_up and row.writes_text:
            notes += (f"{CLEANS} is true: transformers takes spaces before marks out of a text, and answers have them",)
    golden = bundle_pb2.Golden(text=GOLDEN_TEXT, **_languages_to_try(text))
    if row.fills_masks:
        assert text is not None
        golden.text = GOLDEN_MASKED.replace("{}", _mask_token(text, files))
    if row.takes_image:
        image = _image_of(hf, sizes.pictures if row.matches else sizes)
        golden = bundle_pb2.Golden(image_path=GOLDEN_PICTURE, labels=GOLDEN_LABELS if row.matches else ())
        files[GOLDEN_PICTURE] = made_picture(image)
    if row.takes_audio:
        assert text is not None
        audio = read_audio_spec(hf)
        files[text.target_tokenizer] = without_timestamps(files[text.target_tokenizer], audio)
        # A language, a task and that no times are wanted may stand before an answer.
        text.max_new_tokens -= longest_prefix(bundle_pb2.BundleManifest(task=task, audio=audio))
        golden = bundle_pb2.Golden(audio_path=GOLDEN_SOUND, source_language=_first_language(audio))
        files[GOLDEN_SOUND] = made_sound(audio)
    labels = () if not row.has_labels else hf.options.label_names or _labels_of(config, sizes.num_labels)
    labels = EXTRACT_LABELS if row.takes_context else labels
    most, least = _new_tokens(hf, text, audio) if row.writes_text else (None, 0)
    attends = bool(shell.attention_heads) and not shell.summarises
    try:
        checkpoint = Checkpoint(
            family=converter.family,
            description=hf.options.description or f"{converter.architectures[0]} of {hf.directory.resolve().name}",
            model=shell,
            golden=golden,
            text=text,
            image=image,
            audio=audio,
            labels=labels,
            label_text=(hf.options.label_text or DEFAULT_LABEL_TEXT) if row.matches else "",
            max_new_tokens=most,
            min_new_tokens=least,
            decoding=_decoding_of(hf, text) if row.writes_text else common_pb2.Decoding(),
            # Of several layers the last is nearest to what is written.
            attention_layer=len(shell.attention_heads) - 1 if attends else None,
            files=files,
        )
        return fitting(checkpoint), notes
    except CheckpointError as error:
        raise CheckpointError(f"{hf.directory}: {error}") from error


def _vocab_size(sizes: Any) -> int:
    size: int = (
        getattr(sizes, "source_vocab_size", None) or getattr(sizes, "vocab_size", None) or sizes.target_vocab_size
    )
    return size


def _judges(hf: HfCheckpoint, sizes: Any, task: common_pb2.Task.ValueType) -> bool:
    """Whether it is a cross-encoder."""
    return task == common_pb2.TASK_CLASSIFY_TEXT and takes_pairs(sizes, hf)


def _put_separator(text: bundle_pb2.TextSpec, side: TextSide, *, is_needed: bool) -> None:
    separator = separator_of(side)
    if separator is not None:
        text.separator_id = separator
    elif is_needed:
        raise CheckpointError("it takes two texts, and its tokenizer puts no token between them")


def _put_source(
    text: bundle_pb2.TextSpec, hf: HfCheckpoint, sizes: Any, task: common_pb2.Task.ValueType, side: TextSide
) -> None:
    """Put how a text is read whose answer is no text: how long it may be, and what stands before it."""
    row = TASKS[task]
    text.max_source_tokens = sizes.max_tokens
    text.truncation_side = truncation_side(hf, side)
    judges = _judges(hf, sizes, task)
    if task == common_pb2.TASK_EMBED_TEXT or judges:
        read_prompts(hf.directory, () if judges else OF_EMBEDDERS).put(text)
    if row.fills_masks:
        if side.mask_id is None:
            raise CheckpointError("it fills masks, and its tokenizer has no mask_token that the model knows")
        text.mask_id = side.mask_id
    if row.takes_context or judges:
        _put_separator(text, side, is_needed=row.takes_context or hf.options.pairs)


def _mask_token(text: bundle_pb2.TextSpec, files: Mapping[str, bytes]) -> str:
    name = text.source_tokenizer
    token = tokenizer_of(name, files[name]).id_to_token(text.mask_id)
    assert token is not None, "the id of the mask token came from its name. This is a bug."
    return token


def _text_of(hf: HfCheckpoint, sizes: Any, task: common_pb2.Task.ValueType, side: TextSide) -> bundle_pb2.TextSpec:
    row, generation = TASKS[task], hf.generation
    text = bundle_pb2.TextSpec(pad_id=next((each for each in (generation.pad_id, side.pad_id) if each is not None), 0))
    if row.takes_text:
        text.source_tokenizer = side.source_tokenizer
        text.source_vocab_size = getattr(sizes, "source_vocab_size", None) or sizes.vocab_size
    if not row.writes_text:
        _put_source(text, hf, sizes, task, side)
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
    text.max_total_tokens = text.max_new_tokens = sizes.max_target_tokens
    if row.takes_text:
        text.max_source_tokens = sizes.max_source_tokens
    starts = (generation.start_id, generation.bos_id, generation.pad_id)
    start = next((each for each in starts if each is not None), None)
    if start is None:
        raise CheckpointError("neither generation_config.json nor config.json says decoder_start_token_id")
    text.start_id = start
    said = generation.start_id if generation.says_start else None
    languages, targets = started(side.languages, side.target_languages, said)
    text.languages.extend(languages)
    text.source_languages.extend(side.source_languages)
    text.target_languages.extend(targets)
    # A model of several languages is told the one to write by this token, so each of them has its own.
    # Behind what a Whisper's answers begin with, generate() forces none.
    forced = None if row.takes_audio else generation.forced_id
    if forced is not None and not any(each.target_prefix for each in languages):
        text.prefix_ids.append(forced)
    text.max_new_tokens -= Languages(text).longest_prefix
    if generation.forced_end_id is not None:
        text.forced_end_id = generation.forced_end_id
    return text


def _image_of(hf: HfCheckpoint, sizes: Any) -> bundle_pb2.ImageSpec:
    image = read_picture_spec(hf, sizes.channels)
    image.grid_rows, image.grid_columns = sizes.grid
    image.num_class_tokens = getattr(sizes, "num_class_tokens", 0)
    return image


def _first_language(audio: bundle_pb2.AudioSpec) -> str:
    """Return English, if the model knows it, else its first language; empty if answers begin with none."""
    tags = [each.tag for each in audio.languages]
    return "en" if "en" in tags else next(iter(tags), "")


def _ends_of(hf: HfCheckpoint, vocab_size: int) -> list[int]:
    ends = [token for token in hf.generation.end_ids if token < vocab_size]
    if not ends:
        raise CheckpointError("neither generation_config.json nor config.json says eos_token_id: no answer would end")
    return ends


def _languages_to_try(text: bundle_pb2.TextSpec | None) -> dict[str, Any]:
    """Return the languages of the golden request, where it has to name them: from English, if the model knows it."""
    if text is None:
        return {}
    sources, targets = list(text.source_languages), list(text.target_languages)
    named: dict[str, Any] = {}
    if len(sources) > 1:
        named["source_language"] = "en" if "en" in sources else sources[0]
    if len(targets) > 1:
        named["target_language"] = next(tag for tag in targets if tag != named.get("source_language", "en"))
    return named


def _new_tokens(
    hf: HfCheckpoint, text: bundle_pb2.TextSpec | None, audio: bundle_pb2.AudioSpec | None
) -> tuple[int, int]:
    """Return how many tokens an answer has at most and at least, unless a request says otherwise.

    generate() counts a prefix as part of an answer. Its max_length and min_length count the start token too. Those of
    a generator count the prompt, so they are left out. Of a Whisper max_length counts new tokens alone, and min_length
    all that answers begin with.
    """
    assert text is not None
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


def _decoding_of(hf: HfCheckpoint, text: bundle_pb2.TextSpec | None) -> common_pb2.Decoding:
    """Return the settings that a request may have too. generate() passes over a suppressed id that is no token."""
    assert text is not None
    decoding = common_pb2.Decoding()
    decoding.CopyFrom(hf.generation.decoding)
    for name in ("suppressed", "suppressed_first"):
        known = [token for token in getattr(decoding, name).ids if token < text.target_vocab_size]
        decoding.ClearField(name)
        if known:
            getattr(decoding, name).ids.extend(known)
    return decoding


def _labels_of(config: dict[str, Any], num_labels: int) -> tuple[str, ...]:
    """Return the classes in index order. transformers calls those that nobody named LABEL_0, LABEL_1 ..."""
    named = config.get("id2label")
    if named is None:
        named = {str(index): f"LABEL_{index}" for index in range(min(num_labels, MAX_LABELS))}
    try:
        labels = {int(index): label for index, label in named.items()}
        ordered = tuple(labels[index] for index in range(len(labels)))
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError("config.json: id2label must name the labels 0, 1, 2 and so on") from error
    if not all(isinstance(label, str) for label in ordered):
        raise CheckpointError("config.json: id2label must hold strings")
    return _told_apart(ordered)


def _told_apart(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return labels of which none is there twice: each later one gets its index. ImageNet has two cranes."""
    known: dict[str, None] = {}
    for index, label in enumerate(labels):
        distinct = label
        while distinct in known:
            distinct = f"{distinct} ({index})"
        known[distinct] = None
    return tuple(known)
