"""Makes the words of a matcher from the bytes of a model's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.constraint import NEVER, Lexicon, Seam

if TYPE_CHECKING:
    from weft_server.structured_output.token_bytes import TokenBytes


def lexicon_of(tokens: TokenBytes) -> tuple[list[bytes], Lexicon]:
    """Return different words for all that tokens may stand for, and which word each token is told by.

    The first two words are of no token. See NEVER and END.
    """
    numbers: dict[bytes, int] = {b"": 0, b"\xffend": 1}
    first, later, joined = (
        np.array([numbers.setdefault(data or b"", len(numbers)) for data in each], np.int64)
        for each in (tokens.first, tokens.later, tokens.joined)
    )
    seams = []
    for word in tokens.replaced:
        for cut in range(1, len(word)):
            completing = [data is not None and data.startswith(word[cut:]) for data in tokens.raw]
            seams.append(Seam(word[:cut], np.array(completing, np.bool_), word[:cut] in tokens.joints))
    blank = np.flatnonzero((first == NEVER) & (later != NEVER))
    lexicon = Lexicon(len(numbers), first, later, joined, blank, tokens.raw, tokens.is_spelled, tuple(seams))
    return list(numbers), lexicon
