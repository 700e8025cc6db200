"""A checkpoint beside its weights: texts, pictures, labels, and a request to try.

What reads texts, pictures or recordings is imported for a model that takes them.
"""

from typing import Any

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.golden_requests import fitting
from weft_export.converters.converter import DEFAULT_LABEL_TEXT, Converter, HfCheckpoint
from weft_export.errors import CheckpointError
from weft_export.families.classifier import Classifier
from weft_export.families.registry import family_of
from weft_export.families.writer import Writer
from weft_proto.bundle_rules import EXTRACT_LABELS, MAX_LABELS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

GOLDEN_PICTURE = "golden.png"
GOLDEN_SOUND = "golden.wav"
GOLDEN_LABELS = ("a house", "a pattern of coloured squares", "nothing")


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
    read: dict[str, Any] = {"text": None, "image": None, "audio": None}
    notes: tuple[str, ...] = ()
    labels = () if not row.has_labels else hf.options.label_names or _labels_of(config, sizes.num_labels)
    if row.labels_frames:
        from weft_export.converters.ctc_files import read_ctc  # noqa: PLC0415 - late: for models with such labels

        audio, labels = read_ctc(hf, sizes)
        read |= _heard(audio, files)
    elif row.takes_audio and hasattr(sizes, "min_samples"):
        from weft_export.converters.ctc_files import waveform_audio  # noqa: PLC0415 - late: for models that hear samples

        read |= _heard(waveform_audio(hf, sizes), files)
    elif row.takes_audio:
        from weft_export.converters.audio_processor import read_audio_spec  # noqa: PLC0415 - late: for models that hear

        read |= _heard(read_audio_spec(hf), files)
    if row.has_text:
        from weft_export.converters.text_spec import read_texts  # noqa: PLC0415 - late: for models that have texts

        texts, notes = read_texts(hf, config, sizes.texts if row.matches else sizes, task, files, read["audio"])
        read = {**read, **texts}
    if isinstance(shell, Writer) and shell.sees:
        from weft_export.converters.picture_prompts import put_prompts  # noqa: PLC0415 - late: for these models
        from weft_export.converters.sight import GOLDEN_QUESTION, put_image_id  # noqa: PLC0415 - late: for these models

        if shell.bidirectional:
            read["text"].bidirectional = shell.bidirectional
        notes += put_prompts(read["text"], hf, sizes.sight, files)
        notes += put_image_id(read["text"], hf, sizes.sight, files)
        read |= _picture(hf, sizes.sight, files)
        read["golden"].question = GOLDEN_QUESTION
    if row.takes_image:
        read |= _picture(hf, sizes.pictures if row.matches else getattr(sizes, "sight", sizes), files)
        if row.takes_question:
            from weft_export.converters.questions import put_question  # noqa: PLC0415 - late: for these models

            read["golden"].question = put_question(read["text"], hf, getattr(sizes, "sight", None), files)
        read["golden"].labels.extend(GOLDEN_LABELS if row.matches else ())
    attends = bool(shell.attention_heads) and not shell.summarises
    try:
        checkpoint = Checkpoint(
            family=converter.family,
            description=hf.options.description or f"{converter.architectures[0]} of {hf.directory.resolve().name}",
            model=shell,
            labels=EXTRACT_LABELS if row.takes_context else labels,
            label_text=(hf.options.label_text or DEFAULT_LABEL_TEXT) if row.matches else "",
            # Of several layers the last is nearest to what is written.
            attention_layer=len(shell.attention_heads) - 1 if attends else None,
            files=files,
            **read,
        )
        return fitting(checkpoint), notes
    except CheckpointError as error:
        raise CheckpointError(f"{hf.directory}: {error}") from error


def _picture(hf: HfCheckpoint, sizes: Any, files: dict[str, bytes]) -> dict[str, Any]:
    """Read what a model's pictures are, and make one to try among `files`."""
    from weft_export.checkpoints.made_media import made_picture  # noqa: PLC0415 - late: for models that take pictures
    from weft_export.converters.pictures import read_picture_spec  # noqa: PLC0415 - same

    image = read_picture_spec(hf, sizes.channels)
    image.grid_rows, image.grid_columns = sizes.grid
    image.num_class_tokens = getattr(sizes, "num_class_tokens", 0)
    if getattr(sizes, "tiled", "") == "grids":
        from weft_export.converters.sight import put_tiling  # noqa: PLC0415 - late: for models that read tiles

        put_tiling(image, hf)
    files[GOLDEN_PICTURE] = made_picture(image)
    return {"image": image, "golden": bundle_pb2.Golden(image_path=GOLDEN_PICTURE)}


def _heard(audio: bundle_pb2.AudioSpec, files: dict[str, bytes]) -> dict[str, Any]:
    """Return what a model's recordings are, and make one to try among `files`."""
    from weft_export.checkpoints.made_media import made_sound  # noqa: PLC0415 - late: for models that hear

    files[GOLDEN_SOUND] = made_sound(audio)
    golden = bundle_pb2.Golden(audio_path=GOLDEN_SOUND, source_language=_first_language(audio))
    return {"audio": audio, "golden": golden}


def _first_language(audio: bundle_pb2.AudioSpec) -> str:
    """Return English, if the model knows it, else its first language; empty if answers begin with none."""
    tags = [each.tag for each in audio.languages]
    return "en" if "en" in tags else next(iter(tags), "")


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
