"""Which subcommands the client has, in the order of `weft --help`."""

from collections.abc import Callable
from typing import Any

from weft._commands.classify import classify
from weft._commands.embed import embed
from weft._commands.extract import extract
from weft._commands.fill_mask import fill_mask
from weft._commands.health import health
from weft._commands.score import score
from weft._commands.tag import tag
from weft._commands.tokens import detokenize, tokenize
from weft._commands.writing import answer, caption, generate, transcribe, translate

COMMANDS: tuple[Callable[..., Any], ...] = (
    *(translate, caption, answer, transcribe),
    *(classify, tag, extract, fill_mask),
    *(generate, embed, score),
    *(tokenize, detokenize, health),
)
# They take texts, which a shell splits at their spaces.
TAKE_TEXTS = frozenset({translate, answer, tag, extract, fill_mask, generate, score, tokenize})
ABOUT = """Translate, caption, answer, transcribe, classify, tag, extract, fill masks, generate, embed and score.

For example: weft translate "we are eating bread"
"""
