"""What sets one class of tokenizers apart from another."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tokenizers import Tokenizer
from tokenizers.processors import PostProcessor, TemplateProcessing

from weft_export.converters.text.settings import Names, Token, TokenizerSettings, text_of
from weft_export.converters.text.vocabulary import Scores, Vocabulary
from weft_export.errors import CheckpointError

Additional = tuple[Token, ...] | None


class Joint(Enum):
    """How a class puts two texts together. Behind each is what stands behind a text alone."""

    SEGMENTS = "segments"  # the second is segment 1: BERT (Devlin et al. 2018)
    DOUBLED = "doubled"  # before the second it stands twice: RoBERTa (Liu et al. 2019)


@dataclass(frozen=True)
class TokenizerKind:
    """One class of tokenizers, as transformers 5 makes it of its pieces.

    Attributes:
        algorithm: "WordPiece", "BPE" or "Unigram".
        assemble: makes the tokenizer, without added tokens and post-processor.
        names: its special tokens, where no file says otherwise.
        frame: makes the post-processor. None: the one of tokenizer.json, or what the options say of bos and eos.
        model_file: its SentencePiece model; empty when it has none.
        reorder: gives the pieces of that model the ids that this class gives them.
        further: its further special tokens, where no file names extra ones. It is given the additional ones of the
            files, or None where they do not say; of a SentencePiece model they are the model's own symbols instead.
        mask_takes_space: whether the mask token takes the space before it.
        mask_is_normalised: whether it is looked for in the normalised text.
        has_file: whether its pieces are read for it. Otherwise it finds them itself, and not in tokenizer.json.
        note: what a user should hear of it.
        is_plain: whether its special tokens are found as they are, whatever lstrip, rstrip and single_word say of them.
    """

    algorithm: str
    assemble: Callable[[Vocabulary, TokenizerSettings, Names], Tokenizer]
    names: Names = field(default_factory=dict)
    frame: Callable[[Tokenizer, Vocabulary, TokenizerSettings, Names], PostProcessor | None] | None = None
    model_file: str = ""
    reorder: Callable[[Scores, TokenizerSettings, Names], Scores] = lambda scores, _settings, _names: scores
    further: Callable[[Additional, TokenizerSettings], tuple[Token, ...]] = lambda additional, _: additional or ()
    mask_takes_space: bool = False
    mask_is_normalised: bool = False
    has_file: bool = True
    note: str = ""
    is_plain: bool = False


def template(
    tokenizer: Tokenizer,
    settings: TokenizerSettings,
    names: Names,
    before: tuple[str, ...],
    after: tuple[str, ...],
    *,
    joint: Joint | None = None,
) -> PostProcessor:
    """Return a post-processor that puts special tokens, given by their names, around a text, and around two."""
    first, last = [[frame_token(settings, names, name) for name in each] for each in (before, after)]
    single = [*first, "$A", *last]
    pairs = {
        None: ["$A", "$B:1"],
        Joint.SEGMENTS: [*single, "$B:1", *(f"{token}:1" for token in last)],
        Joint.DOUBLED: [*single, *last, "$B", *last],
    }
    tokens = sorted({*first, *last})
    return TemplateProcessing(
        single=single, pair=pairs[joint], special_tokens=[(token, tokenizer.token_to_id(token)) for token in tokens]
    )


def framed(
    before: tuple[str, ...], after: tuple[str, ...], *, joint: Joint | None = None
) -> Callable[..., PostProcessor | None]:
    """Return a frame of the same special tokens for every tokenizer of a class."""

    def frame(
        tokenizer: Tokenizer, _vocabulary: Vocabulary, settings: TokenizerSettings, names: Names
    ) -> PostProcessor:
        return template(tokenizer, settings, names, before, after, joint=joint)

    return frame


def frame_token(settings: TokenizerSettings, names: Names, name: str) -> str:
    """Return a special token that stands around each text. CheckpointError where there is none, or an empty one."""
    token = text_of(names, name)
    if not token:
        said = "null" if token is None else "an empty string"
        raise CheckpointError(f"{settings.where}: {name} is {said}, and this tokenizer puts it around each text")
    return token
