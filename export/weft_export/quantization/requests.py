"""The requests that rounding is measured with: held-out ones, else texts of our own, and random ones."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.framing import masked, positions_of
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.random_requests import random_requests
from weft_export.checkpoints.tokenizer import encode, read_tokenizer
from weft_export.errors import CheckpointError
from weft_export.families.writer import KV_CACHE, Writer
from weft_export.graphs.answering import reference_ids, row_of, target_tokenizer
from weft_proto.questions import encoder_asks, picture_places
from weft_proto.tasks import TASKS

_ALL = """
The harbour was quiet that morning. Two boats came in before the tide turned, and the men who unloaded them spoke
little. Maria counted the crates twice, wrote the number into her book, and walked up the hill to the office, where
the lamp had been burning since five. Nobody had expected the letter that lay on her desk.

----

Question: What is the largest planet of the solar system, and how many moons does it have?
Answer: The largest planet is Jupiter. It is more than eleven times as wide as the Earth. About 95 moons are known, of
which the four largest were seen by Galileo in 1610: Io, Europa, Ganymede and Callisto.

----

def mean(values):
    '''Return the arithmetic mean of a list of numbers.

    >>> mean([1, 2, 6])
    3.0
    '''
    if not values:
        raise ValueError('values is empty')
    return sum(values) / len(values)

----

To make bread you need four things:

1. 500 grams of flour
2. 320 ml of warm water
3. one spoon of salt
4. a little yeast

Mix them well, and let the dough rest for an hour under a towel. Then fold it, form a loaf, and bake it at 230 degrees
until the crust is dark and sounds hollow.

----

Dear Mr Olsen,

thank you for your order of 14 March. Unfortunately, two of the items are not in stock at the moment; we expect them
within ten days. Would you like us to send the rest now, or do you prefer to wait? There is no charge for a second
parcel.

Kind regards,
A. Brandt

----

Die Bibliothek öffnet um neun Uhr. Le train pour Lyon part du quai numéro sept. El mercado está cerrado los lunes,
pero la panadería abre todos los días. Il museo si trova vicino alla stazione. De winkel is om de hoek.

----

Prices rose by 2.4 percent in June, the bank said on Thursday, less than the 2.9 percent that most analysts had
forecast. Energy was cheaper than a year ago, while rents and food cost more. "We are not done yet," said its
president, who did not rule out another step in September.

----

The function f is continuous on the closed interval, so it takes a maximum there. Suppose that this maximum lies in
the interior. Then the derivative at that point is zero, because otherwise f would grow to one of its sides. Therefore
x = 0 or x = 2/3, and since f(0) = 0 < f(2/3) = 4/27, the second one is the answer.
"""

OWN_TEXTS = tuple(text.strip() for text in _ALL.split("----"))


NUM_RANDOM = 16
"""How many random requests there are. Each has one random target of up to MAX_TARGET tokens."""
MAX_TARGET = 128

Request = tuple[tuple[Tensor, ...], list[int]]
"""A pair: what the encoder or classifier takes (a batch of one, or nothing), and all tokens of a model that writes.

The tokens begin with the start or the prompt. A classifier has none.
"""


def sensible_requests(checkpoint: Checkpoint, examples: Sequence[Example], most: int) -> list[Request]:
    """Return at most `most` requests that are like what the model is for, as far as that is known.

    There are three cases:

    1. With examples, these, and their references as targets.
    2. A model of texts without examples: texts of our own, as sources and as targets.
    3. Pictures without examples: random ones.
    """
    requests: list[Request] = []
    if examples or TASKS[checkpoint.task].takes_text:
        requests = telling_requests(checkpoint, examples[:most])
    elif checkpoint.text is not None and isinstance(checkpoint.model, Writer):
        requests = list(own_requests(checkpoint))
    return (requests or list(random_targets(checkpoint)))[:most]


def telling_requests(checkpoint: Checkpoint, examples: Sequence[Example]) -> list[Request]:
    """Return the requests of examples; without any, those of our own texts, for a model that reads texts alone."""
    if examples:
        return list(held_out_requests(checkpoint, examples))
    if checkpoint.text is not None and TASKS[checkpoint.task].takes_text:
        return list(own_requests(checkpoint))
    return []


def random_targets(checkpoint: Checkpoint) -> Iterator[Request]:
    """Yield NUM_RANDOM random requests, with random targets if the model writes."""
    generator = torch.Generator().manual_seed(1)
    for request in random_requests(checkpoint, NUM_RANDOM):
        target: list[int] = []
        if isinstance(checkpoint.model, Writer):
            longest = min(MAX_TARGET, _room(checkpoint) - len(request.tokens))
            length = int(torch.randint(longest + 1, (1,), generator=generator))
            target = torch.randint(checkpoint.text_spec.target_vocab_size, (length,), generator=generator).tolist()
        yield request.source, request.tokens + target


def held_out_requests(checkpoint: Checkpoint, examples: Sequence[Example]) -> Iterator[Request]:
    """Yield a request for each example, with its reference as the target if the model writes."""
    if not isinstance(checkpoint.model, Writer):
        for example in examples:
            source = _batch_of(example.source)
            if checkpoint.text is not None and TASKS[checkpoint.task].fills_masks:
                source = (*source, positions_of(example.source, checkpoint.text.mask_id)[None])
            yield source, []
        return
    tokenizer = target_tokenizer(checkpoint)
    for example in examples:
        row = row_of(checkpoint, example)
        wanted = reference_ids(checkpoint, tokenizer, example)
        tokens = (row.tokens + wanted)[: _room(checkpoint)]
        asked = () if row.asked is None else _batch_of(row.asked)
        yield () if row.source is None else (*_batch_of(row.source), *asked), tokens


def own_requests(checkpoint: Checkpoint) -> Iterator[Request]:
    """Yield a request for each of OWN_TEXTS that the tokenizers can read. Pictures and recordings are random."""
    text = checkpoint.text_spec
    pictures = None if TASKS[checkpoint.task].takes_text else random_requests(checkpoint, len(OWN_TEXTS))
    for index, words in enumerate(OWN_TEXTS):
        tokens: list[int] = []
        if isinstance(checkpoint.model, Writer):
            target = _ids(checkpoint, text.target_tokenizer, words, text.target_vocab_size)
            start = [text.start_id] if text.HasField("start_id") else []
            tokens = (start + target)[: min(MAX_TARGET, _room(checkpoint))]
        source: tuple[Tensor, ...] = ()
        if pictures is not None:
            source = pictures[index].source
            asked = _ids(checkpoint, text.source_tokenizer, words, text.source_vocab_size) if encoder_asks(text) else []
            if asked:
                question = torch.tensor(asked[: min(MAX_TARGET, text.max_source_tokens)])
                source = (source[0], *_batch_of(question))
        elif text.max_source_tokens:
            ids = _ids(checkpoint, text.source_tokenizer, words, text.source_vocab_size)
            if not ids:
                continue
            source = _batch_of(torch.tensor(ids[: min(MAX_TARGET, text.max_source_tokens)]))
            if TASKS[checkpoint.task].fills_masks:
                chosen, positions = masked(source[0][0], text.mask_id)
                source = chosen[None], source[1], positions[None]
        if source or tokens:
            yield source, tokens


def _room(checkpoint: Checkpoint) -> int:
    """Return how many tokens the caches of a model that writes hold, behind a picture that they begin with."""
    model = checkpoint.model
    assert isinstance(model, Writer), "this model writes no text. This is a bug."
    begins = any(state.kind == KV_CACHE and state.encoded for state in model.states)
    taken = picture_places(checkpoint.image) if begins and checkpoint.image is not None else 0
    return checkpoint.text_spec.max_total_tokens - taken


def _ids(checkpoint: Checkpoint, name: str, words: str, vocab_size: int) -> list[int]:
    """Return a text in tokens that the model has; none if the tokenizer knows no word of it."""
    try:
        ids = encode(read_tokenizer(checkpoint, name), words).ids
    except CheckpointError:
        return []
    return [token for token in ids if token < vocab_size]


def _batch_of(source: Tensor) -> tuple[Tensor, ...]:
    """Make a batch of one of pixels, energies or samples, or of ids [seq], which have a length beside them."""
    if source.is_floating_point():
        return (source[None],)
    return source[None], torch.tensor([len(source)], dtype=torch.int32)
