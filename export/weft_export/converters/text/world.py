"""The tokenizer of RWKV's "World" models: of all that its vocabulary has, the longest that a text goes on with.

The vocabulary is of bytes, and some of its tokens are parts of a character. So a text becomes one letter for each byte
first, as in GPT-2. One expression then takes the longest token from there on. It is the tree of all tokens.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.formats import WORLD_FILE
from weft_export.converters.text.fast import JSON_FILE, made
from weft_export.converters.text.kinds import AS_IT_IS
from weft_export.converters.text.settings import CONFIG
from weft_export.errors import CheckpointError

END_ID = 0
"""What ends a text. No line of the vocabulary has it, and no text can spell it."""
MAX_TOKEN_BYTES = 128
MAX_TOKENS = 2**17
_MAX_DIGITS = 7
# Of four letters for a byte, such as \x00.
_MAX_LITERAL = 8 * MAX_TOKEN_BYTES
# As the cards of the released models state it. A blank line ends a turn, so that a message has none.
_TEMPLATE = """\
{%- for message in messages -%}
{%- set lines = message['content'].strip().splitlines() | select | join('\n') -%}
{%- if message['role'] == 'system' -%}
{{- 'System: ' + lines + '\n\n' -}}
{%- elif message['role'] == 'user' -%}
{{- 'User: ' + lines + '\n\n' -}}
{%- elif message['role'] == 'assistant' -%}
{{- 'Assistant: ' + lines + '\n\n' -}}
{%- else -%}
{{- raise_exception('a message is of system, user or assistant') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'Assistant:' -}}
{%- endif -%}
"""
Tree = dict[str, "Tree"]


def write_tokenizer(source: Path, directory: Path, vocab_size: int) -> None:
    """Write the tokenizer of the vocabulary in one folder into another, as a Hugging Face directory has it.

    Raises:
        CheckpointError: the vocabulary is missing, is not what its lines say, or has more ids than vocab_size.
    """
    path = source / WORLD_FILE
    if not path.exists():
        raise CheckpointError(
            f"{source} has no {WORLD_FILE}, by which texts are cut. It lies in the package rwkv of PyPI, and in"
            " github.com/BlinkDL/ChatRWKV: put it beside the weights"
        )
    tokens = read_vocabulary(path)
    if max(tokens.values()) >= vocab_size:
        raise CheckpointError(
            f"{path} has the id {max(tokens.values())}, and the model has {vocab_size} tokens: it is of another"
            " vocabulary, which is not read"
        )
    (directory / JSON_FILE).write_text(made(path, lambda: world_tokenizer(tokens)).to_str(), encoding="utf-8")
    config = {"tokenizer_class": AS_IT_IS, "chat_template": _TEMPLATE}
    (directory / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def read_vocabulary(path: Path) -> dict[bytes, int]:
    """Return the ids of a vocabulary by their tokens. Each line has an id, a literal of Python, and its length.

    Raises:
        CheckpointError: a line says something else, two say the same, or a single byte has no token.
    """
    lines = _lines(path)
    if not 256 <= len(lines) <= MAX_TOKENS:
        raise CheckpointError(f"{path} has {len(lines)} lines; 256 to {MAX_TOKENS} are read")
    tokens: dict[bytes, int] = {}
    ids = {END_ID}
    for number, line in enumerate(lines, 1):
        token, id_ = _token(path, number, line)
        if token in tokens or id_ in ids:
            raise CheckpointError(
                f"{path}: line {number} has a token or an id that another one has, or {END_ID}, which ends a text"
            )
        tokens[token] = id_
        ids.add(id_)
    missing = [byte for byte in range(256) if bytes([byte]) not in tokens]
    if missing:
        raise CheckpointError(f"{path} has no token of the byte {missing[0]}, so not every text could be read")
    return tokens


def _lines(path: Path) -> list[str]:
    try:
        return read_file(path).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error}") from error


def _token(path: Path, number: int, line: str) -> tuple[bytes, int]:
    id_, _, rest = line.removesuffix("\r").partition(" ")
    text, _, length = rest.rpartition(" ")
    token = _literal(text) if len(text) <= _MAX_LITERAL else b""
    is_whole = id_.isdecimal() and len(id_) < _MAX_DIGITS
    if not is_whole or not token or length != str(len(token)) or len(token) > MAX_TOKEN_BYTES:
        raise CheckpointError(
            f"{path}: line {number} is not an id, a token as Python writes it, and its length of at most"
            f" {MAX_TOKEN_BYTES} bytes: {line:.60}"
        )
    return token, int(id_)


def _literal(text: str) -> bytes:
    """Return the bytes of a string, or of bytes, as Python writes them. Nothing for what is neither."""
    try:
        value = ast.literal_eval(text)
        return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return b""


def world_tokenizer(tokens: dict[bytes, int]) -> Tokenizer:
    """Return the tokenizer that takes the longest token of a vocabulary at each place, by its library's own parts."""
    alphabet = _alphabet()
    spelled = {"".join(map(alphabet.__getitem__, token)): id_ for token, id_ in tokens.items()}
    tokenizer = Tokenizer(models.WordLevel(spelled, unk_token=""))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            pre_tokenizers.Split(Regex(_longest(_tree_of(spelled))), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _alphabet() -> dict[int, str]:
    """Return GPT-2's letter of each byte: those that print stand for themselves."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


_END = ""


def _tree_of(words: dict[str, int]) -> Tree:
    tree: Tree = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return tree


def _longest(node: Tree) -> str:
    """Return an expression for the longest way from a node to the end of a word.

    At each letter one branch alone goes on. Where it ends in no word, the last word before counts: `?` takes what
    follows if it can. So a place of a text costs as many turns as a token has letters.
    """
    branches = list(_branches(node))
    if not branches:
        return ""
    body = "|".join(branches)
    if _END in node:
        return f"(?:{body})?"
    return f"(?:{body})" if len(branches) > 1 else body


def _branches(node: Tree) -> Iterator[str]:
    """Yield an expression for each letter that words go on with; one for all with which they end."""
    last = [re.escape(letter) for letter, after in node.items() if letter != _END and after.keys() == {_END}]
    if last:
        yield last[0] if len(last) == 1 else f"[{''.join(last)}]"
    for letter, after in node.items():
        if letter != _END and after.keys() != {_END}:
            yield re.escape(letter) + _longest(after)
