"""A checkpoint's tokenizers, used as a server uses them."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar

from tokenizers import Encoding, Tokenizer

from weft_export.errors import CheckpointError
from weft_proto.languages import Frame
from weft_proto.prompts import default_prompt, max_chars, spelling_fault, truncation_direction
from weft_proto.token_vectors import default_length
from weft_proto.tokenizer_rules import is_panic, tokenizer_fault
from weft_proto.v1 import bundle_pb2

_NO_FRAME = Frame()
Made = TypeVar("Made")


class Spoken(Protocol):
    """What has texts, and files by name: a checkpoint, or an ONNX file that others made."""

    @property
    def text(self) -> bundle_pb2.TextSpec | None:
        """What is said of its texts."""

    @property
    def text_spec(self) -> bundle_pb2.TextSpec:
        """The same, of one that has texts."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """Its tokenizers are among them."""


def read_tokenizer(checkpoint: Spoken, name: str) -> Tokenizer:
    """Read a tokenizer file of a checkpoint, without padding. A text is cut where the checkpoint says so, or never.

    Whoever reads the same file gets the same object: nobody changes it.

    Raises:
        CheckpointError: the file is no tokenizer, or one that no text should meet.
    """
    text, cut = checkpoint.text, None
    if text is not None and name == text.source_tokenizer and (direction := truncation_direction(text)):
        cut = (text.max_source_tokens, direction)
    return tokenizer_of(name, checkpoint.files[name], cut)


def tokenizer_of(where: Path | str, content: bytes, cut: tuple[int, str] | None = None) -> Tokenizer:
    """Return the tokenizer in a file's content, without padding. `where` is the file in an error.

    cut: how many tokens of a text are taken at most, and at which end it is cut. None: it never is.

    The object is shared, and raised are the errors, as of read_tokenizer.
    """
    tokenizer, fault = tried(f"{where} is not a tokenizer", lambda: _parsed(content, cut))
    if fault:
        raise CheckpointError(f"{where}: {fault}")
    return tokenizer


# A large vocabulary takes over a second, and an export asks for it in a dozen places: of a source and of a target.
@lru_cache(maxsize=2)
def _parsed(content: bytes, cut: tuple[int, str] | None) -> tuple[Tokenizer, str | None]:
    """Return a tokenizer, and why no text should meet it, if so."""
    tokenizer = Tokenizer.from_buffer(content)
    fault = _fault_of(tokenizer)
    if cut is not None:
        tokenizer.enable_truncation(cut[0], direction=cut[1])
    return tokenizer, fault


def check_tokenizer(where: Path | str, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError for a tokenizer that no text should meet. Truncation and padding are off afterwards."""
    if fault := _fault_of(tokenizer):
        raise CheckpointError(f"{where}: {fault}")


def _fault_of(tokenizer: Tokenizer) -> str | None:
    """Say why no text should meet a tokenizer, or None. Truncation and padding are off afterwards."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer_fault(tokenizer)


def tried(complaint: str, call: Callable[[], Made]) -> Made:
    """Return what a call of the tokenizers library does. What it refuses, a panic included, is a CheckpointError."""
    try:
        return call()
    except CheckpointError:
        raise
    except BaseException as error:  # tokenizers raises no narrower type
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise CheckpointError(f"{complaint}: {error}") from error


def encode(tokenizer: Tokenizer, text: str, *, special: bool = True) -> Encoding:
    """Encode a text, with the special tokens that the file's post-processor adds.

    Raises:
        CheckpointError: it has a word that is not in the vocabulary, and that has no token for unknown ones.
    """
    return tried("cannot be tokenized", lambda: tokenizer.encode(text, add_special_tokens=special))


def encode_source(checkpoint: Spoken, tokenizer: Tokenizer, given: str, frame: Frame = _NO_FRAME) -> list[int]:
    """Return the ids of a source or a prompt, behind the model's own prompt, and those of frame around them.

    Where a server would refuse it, CheckpointError says what is wrong.
    """
    text = checkpoint.text_spec
    matching = [prefix for prefix in text.prefixes if given.startswith(prefix)]
    if text.prefixes and not matching:
        raise CheckpointError("must begin with one of text.prefixes")
    if not given.removeprefix(max(matching, key=len, default="")).strip():
        raise CheckpointError("is blank")
    limit = default_length(text) or text.max_total_tokens - 1
    if len(given) > (most := max_chars(text, limit)):
        raise CheckpointError(f"has {len(given)} characters; a server takes {most} for {limit} tokens")
    encoding = encode(tokenizer, (prompt := default_prompt(text)) + given)
    # Tokens of the prompt are none of the text.
    if all(encoding.special_tokens_mask) or (prompt and not encode(tokenizer, given, special=False).ids):
        raise CheckpointError("holds nothing that the tokenizer keeps")
    ids = [*frame.before, *encoding.ids, *frame.after]
    if len(ids) > limit:
        raise CheckpointError(f"has {len(ids)} tokens; the model takes {limit}")
    return ids


def check_tokenizers(checkpoint: Spoken) -> None:
    """Raise CheckpointError for a tokenizer that a server would refuse."""
    text = checkpoint.text
    if text is None:
        return
    for name in {text.source_tokenizer, text.target_tokenizer} - {""}:
        # Of the decoder alone: written whole, a tokenizer takes a minute for ids of some billions.
        decoder = read_tokenizer(checkpoint, name).decoder
        steps = {} if decoder is None else json.loads(decoder.__getstate__())
        kinds = [step["type"] for step in steps.get("decoders", [])]
        if "ByteLevel" in kinds and len(kinds) > 1:
            raise CheckpointError(f"{name}: its decoder mixes ByteLevel with others, which cannot be streamed")
    if text.source_tokenizer:
        tokenizer = read_tokenizer(checkpoint, text.source_tokenizer)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        highest = max(vocabulary.values(), default=-1)
        if highest >= text.source_vocab_size:
            token = next(token for token, index in vocabulary.items() if index == highest)
            raise CheckpointError(
                f"{text.source_tokenizer} has the token {token!r:.60} with the id {highest}, but text.source_vocab_size"
                f" is {text.source_vocab_size}: a text with it would have no embedding. Take such tokens out of the"
                " tokenizer, or train an embedding for them"
            )
        if fault := spelling_fault(text, lambda prompt: encode(tokenizer, prompt, special=False).ids):
            raise CheckpointError(fault)
