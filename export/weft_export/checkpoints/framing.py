"""What stands around the ids of a request as a server puts it there: languages, a question's context, masks."""

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer, tried
from weft_export.errors import CheckpointError
from weft_proto.languages import Frame, LanguageError, Languages
from weft_proto.questions import asked_text, decoder_asks
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
        asks = decoder_asks(checkpoint.task, text)
        return Frame(prefix=(*plain.prefix, *asked_ids(checkpoint, question))) if asks else plain
    try:
        return Languages(text).frame(source_language, target_language)
    except LanguageError as error:
        raise CheckpointError(f"{error.field} {error}") from error


def asked_ids(checkpoint: Checkpoint, question: str) -> list[int]:
    """Return the ids of a question as a model reads it.

    Raises:
        CheckpointError: a server would refuse it. The sentence begins with its name.
    """
    text = checkpoint.text_spec
    tokenizer = read_tokenizer(checkpoint, text.source_tokenizer)
    try:
        ids = encode_source(checkpoint, tokenizer, asked_text(text, question))
    except (CheckpointError, ValueError) as error:
        raise CheckpointError(f"question {error}") from error
    if text.HasField("question") and text.question.image_id in ids:
        raise CheckpointError("question spells the token of a picture")
    return ids


def asked_source(checkpoint: Checkpoint, question: str, place: str = "") -> tuple[Tensor, ...]:
    """Return what an encoder reads of a question behind a picture: ids [1, seq] and lengths.

    Raises:
        CheckpointError: as of asked_ids, behind `place`.
    """
    try:
        ids = torch.tensor([asked_ids(checkpoint, question)])
    except CheckpointError as error:
        raise CheckpointError(f"{place}{error}") from error
    return ids, torch.tensor([ids.shape[1]], dtype=torch.int32)


def _spoken(audio: bundle_pb2.AudioSpec, language: str) -> Frame:
    """Return what an answer begins with. The language of what is spoken is called source_language here."""
    try:
        return Frame(prefix=spoken_ids(audio, language, to_english=False))
    except LanguageError as error:
        raise CheckpointError(f"source_{error.field} {error}") from error


@dataclass(frozen=True)
class Asked:
    """The ids of both texts, which of them are the context's, and the characters [start, end) of each of these."""

    ids: list[int]
    context: range
    places: list[tuple[int, int]]

    def tokens_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last token, counted in the context, that stand for characters [start, end) of it.

        Raises:
            CheckpointError: none does.
        """
        found = [index for index, (first, last) in enumerate(self.places) if first < min(last, end) and last > start]
        if not found:
            raise CheckpointError(f"[{start}, {end}] has no token of the input")
        return found[0], found[-1]


def joined(checkpoint: Checkpoint, tokenizer: Tokenizer, question: str, context: str) -> Asked:
    """Join a question and a context for a model that extracts answers.

    Raises:
        CheckpointError: one is blank, or has the token that stands between them, or both are longer than the model
            takes. A server reads a longer context in windows.
    """
    text = checkpoint.text_spec
    for name, words in (("question", question), ("input", context)):
        if not words.strip():
            raise CheckpointError(f"the {name} is blank")
    encoding = tried("both texts cannot be tokenized", lambda: tokenizer.encode(question, context))
    which = encoding.sequence_ids
    spelled = [token for token, number in zip(encoding.ids, which, strict=True) if number is not None]
    if text.separator_id in spelled:
        raise CheckpointError("the question or the input spells the token that stands between them")
    if len(encoding.ids) > text.max_source_tokens:
        limit = text.max_source_tokens
        raise CheckpointError(f"the question and the input have {len(encoding.ids)} tokens; the model takes {limit}")
    if 1 not in which:
        raise CheckpointError("the input holds nothing that the tokenizer keeps")
    first = which.index(1)
    context_tokens = range(first, first + which.count(1))
    return Asked(encoding.ids, context_tokens, [encoding.offsets[index] for index in context_tokens])


# Of a text that is masked, as "BERT" (Devlin et al. 2019) masks 15%.
_EVERY = 7


def positions_of(ids: Tensor, mask_id: int) -> Tensor:
    """Return the positions int64 [masks] of the masks among ids [seq]."""
    return (ids == mask_id).nonzero()[:, 0]


def masked(ids: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """Return ids [seq] with a mask in the place of every seventh token, and the positions [masks]."""
    positions = torch.arange(min(_EVERY // 2, len(ids) - 1), len(ids), _EVERY)
    return ids.index_fill(0, positions, mask_id), positions
