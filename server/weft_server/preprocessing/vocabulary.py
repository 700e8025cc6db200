"""What each token id of a tokenizer file stands for: text, raw bytes, a special token."""

import json
from collections.abc import Sequence
from typing import Any

import tokenizers


class Vocabulary:
    """The decoding side of a tokenizer. What a stream must know about single ids is worked out once.

    Attributes:
        tokens: the token of each id, as the file writes it.
        special: ids that are no text.
        raw: the bytes of those ids that stand for bytes, which may be part of a character.
        blank: ids whose text is spaces only.
        decoder: what the file says of its decoder. None: it has none.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Raises ValueError for a decoder that turns tokens into bytes in a way that cannot be streamed."""
        self._tokenizer = tokenizer
        self.tokens = {id_: token for token, id_ in tokenizer.get_vocab(with_added_tokens=True).items()}
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(id_ for id_, token in added.items() if token.special)
        self.decoder: dict[str, Any] | None = json.loads(tokenizer.to_str())["decoder"]
        self.raw = _raw(self.tokens, _decoder_chain(self.decoder))
        self.blank = frozenset(id_ for id_, token in self.tokens.items() if not token.strip(" ▁"))

    def is_text(self, id_: int) -> bool:
        """Whether an id adds to the text. Special and unknown ones do not."""
        return id_ in self.tokens and id_ not in self.special

    def decode(self, ids: Sequence[int]) -> str:
        """Return the library's own decoding of a whole sequence."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def text(self, id_: int) -> str:
        """Return the text of a token alone, with a space before it if it has one. A special token has its name.

        Of an id without a token it is empty: a model may have more rows than its tokenizer has tokens.
        """
        return self.tokens[id_] if id_ in self.special else self.decode([id_])

    def piece(self, id_: int) -> str:
        """Return one string to show for a token: without its word-boundary mark, a special token by name."""
        token = self.tokens.get(id_, f"<{id_}>")
        if id_ in self.special:
            return token
        raw = self.raw.get(id_)
        if raw is None:
            text = token.replace("▁", " ")
        else:
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                return "".join(f"<0x{byte:02X}>" for byte in raw)
        return text.strip() or text


def _decoder_chain(decoder: dict[str, Any] | None) -> list[str]:
    decoder = decoder or {"decoders": []}
    chain = [step["type"] for step in decoder.get("decoders", [decoder])]
    if "ByteLevel" in chain and len(chain) > 1:
        raise ValueError(f"its decoder mixes ByteLevel with others: {chain}")
    return chain


def _raw(tokens: dict[int, str], chain: list[str]) -> dict[int, bytes]:
    if chain == ["ByteLevel"]:
        table = _byte_level_alphabet()
        # A token with characters beyond the alphabet was added as text.
        return {
            id_: bytes(map(table.__getitem__, token)) if table.keys() >= set(token) else token.encode()
            for id_, token in tokens.items()
        }
    if "ByteFallback" in chain:
        names = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
        return {id_: names[token] for id_, token in tokens.items() if token in names}
    return {}


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for characters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
