"""The same translation said to a stranger: usted in the place of tú. English says you to both."""

from collections.abc import Iterator
from dataclasses import replace

from weft_recipes.grammar.clauses import ESTABA, ESTAR, IR, PODER, QUERER, SER, TENER
from weft_recipes.grammar.lexicon import VERBS
from weft_recipes.grammar.pairs import Pair

# Of the five persons yo, tú, él, nosotros, ellos. A verb has the same form for usted as for él.
_TU, _USTED = 1, 2


def _forms() -> Iterator[tuple[str, ...]]:
    yield from (ESTABA, ESTAR, IR, PODER, QUERER, SER, TENER)
    for verb in VERBS:
        yield from (forms for forms in (verb.present, verb.preterite) if forms)


_FORMAL = {forms[_TU]: forms[_USTED] for forms in _forms()} | {"tu": "su", "tus": "sus"}


def is_familiar(pair: Pair) -> bool:
    """Whether a translation says tú."""
    return formal(pair) != pair


def formal(pair: Pair) -> Pair:
    """Return a pair whose Spanish says usted. It is the same if it says tú to nobody."""
    following = (*pair.es[1:], "")
    return replace(pair, es=tuple(_word(word, after) for word, after in zip(pair.es, following, strict=True)))


def _word(word: str, after: str) -> str:
    if word == "te":  # what pleases a stranger pleases le, and whom one sees is lo
        return "le" if after in ("gusta", "gustan") else "lo"
    return _FORMAL.get(word, word)
