"""What stands around the ids of a request to a checkpoint's model, as a server puts it there."""

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_proto.languages import Frame, LanguageError, Languages
from weft_proto.sound import spoken_ids
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def frame_of(checkpoint: Checkpoint, source_language: str = "", target_language: str = "", question: str = "") -> Frame:
    """Return the frame of a request that names these languages, or none, and asks this, if the model answers.

    Raises:
        CheckpointError: a server would refuse them. The sentence begins with the name of the one that is wrong.
    """
    text = checkpoint.text or bundle_pb2.TextSpec()
    row = TASKS[checkpoint.task]
    if question and not row.takes_question:
        raise CheckpointError("question is for models that answer")
    if checkpoint.audio is not None:
        return _spoken(checkpoint.audio, source_language)
    if not row.takes_language:
        if source_language or target_language:
            raise CheckpointError(f"{'source' if source_language else 'target'}_language is for models that translate")
        plain = Languages(text).plain
        return Frame(prefix=(*plain.prefix, *_asked(checkpoint, question))) if row.takes_question else plain
    try:
        return Languages(text).frame(source_language, target_language)
    except LanguageError as error:
        raise CheckpointError(f"{error.field} {error}") from error


def _asked(checkpoint: Checkpoint, question: str) -> list[int]:
    assert checkpoint.text is not None
    tokenizer = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer)
    try:
        return encode_source(checkpoint, tokenizer, question)
    except CheckpointError as error:
        raise CheckpointError(f"question {error}") from error


def _spoken(audio: bundle_pb2.AudioSpec, language: str) -> Frame:
    """Return what an answer begins with. The language of what is spoken is called source_language here."""
    try:
        return Frame(prefix=spoken_ids(audio, language, to_english=False))
    except LanguageError as error:
        raise CheckpointError(f"source_{error.field} {error}") from error
