"""A row whose request has every setting at its limit."""

import numpy as np

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import History
from weft_server.models.model import DecodingLimits
from weft_server.requests.decoding_config import resolve_decoding

NUM_READ = 2048


def worst_decoding(rng, vocab, num_read=NUM_READ):
    """A request for what becomes rules, each at its limit."""

    def phrases(num):
        return [common_pb2.TokenIds(ids=rng.integers(3, vocab, 1 + index % 32)) for index in range(num)]

    # Half of the lists are single tokens, which always count.
    short = [common_pb2.TokenIds(ids=[token]) for token in rng.integers(3, vocab, 512)]
    return common_pb2.Decoding(
        penalties=common_pb2.Penalties(
            repetition=0.5,
            encoder_repetition=2,
            presence=-1,
            frequency=-0.1,
            no_repeat_ngram_size=2,
            encoder_no_repeat_ngram_size=1,
        ),
        bias=[common_pb2.PhraseBias(token_ids=phrase, bias=1) for phrase in (*short, *phrases(512))],
        banned=[common_pb2.Phrase(token_ids=phrase) for phrase in (*short, *phrases(512))],
        suppressed=common_pb2.TokenSet(ids=rng.integers(3, vocab, 1024)),
        suppressed_first=common_pb2.TokenSet(ids=rng.integers(3, vocab, 1024)),
        stop_token_ids=common_pb2.TokenSet(ids=rng.integers(3, vocab, 1024)),
        length_decay=common_pb2.LengthDecay(start=0, factor=1.001),
        min_new_tokens=num_read,
    )


def worst_rules(vocab, ends, num_read=NUM_READ):
    """The rules of a row that has read so many tokens, as a request may ask for them at the most."""
    rng = np.random.default_rng(1)
    decoding = worst_decoding(rng, vocab, num_read)
    text = bundle_pb2.TextSpec(
        max_total_tokens=2 * num_read,
        max_new_tokens=num_read,
        source_vocab_size=vocab,
        target_vocab_size=vocab,
        end_ids=ends,
    )
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSLATE, text=text)
    manifest.decoding.max_new_tokens = num_read
    rules = resolve_decoding(decoding, manifest, DecodingLimits(8, 8, 64), 0).rules
    # A source of 64 tokens: each of them is banned, and more would leave nothing to choose.
    row = RowRules.begin(rules, History([1], rng.integers(3, vocab, 64), num_read))
    for token in rng.integers(3, vocab, num_read - 1).tolist():
        row.advance(token)
    return row
