"""A question and its context as a tokenizer joins them, and where a part of the context is among the tokens."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import tried
from weft_export.errors import CheckpointError


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
    text = checkpoint.text
    assert text is not None
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
