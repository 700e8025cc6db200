"""A vocabulary of random words, and what steps under a constraint over it cost."""

import string
import tempfile
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from weft_proto.v1 import common_pb2
from weft_server.logits_processors.history import History
from weft_server.preprocessing.tokenizer import Tokenizer

STEPS = 100


def vocabulary(size):
    """A byte-level tokenizer of random words, as large as `size` says."""
    rng = np.random.default_rng(0)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = dict.fromkeys(alphabet)
    while len(tokens) < size:
        word = "".join(rng.choice(list(string.ascii_lowercase), rng.integers(2, 9)))
        tokens["Ġ" * bool(rng.random() < 0.5) + word] = None
    library = Library(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    library.decoder = decoders.ByteLevel()
    with tempfile.TemporaryDirectory() as directory:
        library.save(f"{directory}/tokenizer.json")
        return Tokenizer(Path(directory) / "tokenizer.json")


def constraint_of(kind, source):
    """A Constraint as a request has it."""
    return common_pb2.Constraint(**{kind: common_pb2.Choice(texts=source) if kind == "choice" else source})


def follow(constraint, vocab_size, rng):
    """Seconds of each of some steps with random tokens."""
    following, history, seconds = constraint.begin(History([])), History([], room=STEPS), []
    for _ in range(STEPS):
        scores = np.zeros(vocab_size, np.float32)
        following.apply(None, scores, history)
        allowed = np.flatnonzero(scores[:-1] == 0)
        if not len(allowed):
            break
        started = time.process_time()
        following.advance(int(rng.choice(allowed)), history)
        following.fork()
        seconds.append(time.process_time() - started)
    return seconds
