"""A checkpoint's tokenizers, used as a server uses them."""

import json
from collections.abc import Mapping
from typing import Protocol

from tokenizers import Encoding, Tokenizer

from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_CHARS_PER_TOKEN
from weft_proto.languages import Frame
from weft_proto.v1 import bundle_pb2

_NO_FRAME = Frame()


class Spoken(Protocol):
    """What has texts, and files by name: a checkpoint, or an ONNX file that others made."""

    @property
    def text(self) -> bundle_pb2.TextSpec | None:
        """What is said of its texts."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """Its tokenizers are among them."""


def read_tokenizer(checkpoint: Spoken, name: str) -> Tokenizer:
    """Read a tokenizer file of a checkpoint, with truncation and padding off: a text that is too long is never cut.

    Raises:
        CheckpointError: the file is no tokenizer.
    """
    try:
        tokenizer = Tokenizer.from_buffer(checkpoint.files[name])
    except Exception as error:  # tokenizers raises no narrower type
        raise CheckpointError(f"{name} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, *, special: bool = True) -> Encoding:
    """Encode a text, with the special tokens that the file's post-processor adds.

    Raises:
        CheckpointError: it has a word that is not in the vocabulary, and that has no token for unknown ones.
    """
    try:
        return tokenizer.encode(text, add_special_tokens=special)
    except Exception as error:  # tokenizers raises no narrower type
        raise CheckpointError(f"cannot be tokenized: {error}") from error


def encode_source(checkpoint: Spoken, tokenizer: Tokenizer, given: str, frame: Frame = _NO_FRAME) -> list[int]:
    """Return the ids of a source or a prompt, those of frame around them.

    Where a server would refuse it, CheckpointError says what is wrong.
    """
    text = checkpoint.text
    assert text is not None
    matching = [prefix for prefix in text.prefixes if given.startswith(prefix)]
    if text.prefixes and not matching:
        raise CheckpointError("must begin with one of text.prefixes")
    if not given.removeprefix(max(matching, key=len, default="")).strip():
        raise CheckpointError("is blank")
    limit = text.max_source_tokens or text.max_total_tokens - 1
    if len(given) > limit * MAX_CHARS_PER_TOKEN:
        allowed = f"a server takes {MAX_CHARS_PER_TOKEN} for each of {limit} tokens"
        raise CheckpointError(f"has {len(given)} characters; {allowed}")
    encoding = encode(tokenizer, given)
    if all(encoding.special_tokens_mask):
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
        read_tokenizer(checkpoint, name)
        # From the file itself: written again, a tokenizer takes a minute for ids of some billions.
        decoder = json.loads(checkpoint.files[name]).get("decoder") or {}
        kinds = [step["type"] for step in decoder.get("decoders", [])]
        if "ByteLevel" in kinds and len(kinds) > 1:
            raise CheckpointError(f"{name}: its decoder mixes ByteLevel with others, which cannot be streamed")
    if text.source_tokenizer:
        vocabulary = read_tokenizer(checkpoint, text.source_tokenizer).get_vocab(with_added_tokens=True)
        highest = max(vocabulary.values(), default=-1)
        if highest >= text.source_vocab_size:
            token = next(token for token, index in vocabulary.items() if index == highest)
            raise CheckpointError(
                f"{text.source_tokenizer} has the token {token!r:.60} with the id {highest}, but text.source_vocab_size"
                f" is {text.source_vocab_size}: a text with it would have no embedding. Take such tokens out of the"
                " tokenizer, or train an embedding for them"
            )
