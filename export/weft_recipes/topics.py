"""Recipe `topics`: which part of the standard library a docstring is about, by a Transformer encoder."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.console import OnProgress
from weft_export.families.text_classifier import TextClassifier, TextClassifierConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import PAD, UNKNOWN, byte_pair_tokenizer
from weft_recipes.texts.docstrings import is_held_out, read_docstrings

SEED = 41
HELD_OUT_SHARE = 5
"""One in so many source files is never trained on."""
BATCH, NUM_STEPS, PEAK_LR = 48, 1_200, 1e-3
VOCAB_SIZE, MAX_TOKENS, MIN_CHARACTERS = 3_000, 128, 24
DROPOUT, FORGOTTEN = 0.3, 0.15
"""FORGOTTEN is the share of tokens replaced by <unknown> while training, so that no single word decides."""
EXAMPLE = "Return a socket connected to the given host and port."

TOPICS = {
    "networking": (
        "http urllib socket ssl smtplib smtpd ftplib imaplib poplib nntplib telnetlib xmlrpc socketserver wsgiref "
        "selectors ipaddress asyncore asynchat cgi webbrowser netrc nturl2path"
    ),
    "concurrency": "asyncio threading _threading_local multiprocessing concurrent queue sched subprocess contextvars",
    "text and markup": (
        "email xml html json csv configparser plistlib mailbox mimetypes tomllib textwrap string difflib re "
        "gettext locale codecs encodings quopri base64 shlex pprint reprlib stringprep"
    ),
    "files and archives": (
        "pathlib shutil zipfile tarfile tempfile os posixpath ntpath genericpath glob fnmatch gzip bz2 lzma "
        "_compression fileinput filecmp _pyio io stat dbm shelve zipapp wave aifc sndhdr chunk sunau"
    ),
    "numbers and dates": (
        "_pydecimal decimal fractions statistics random numbers datetime _pydatetime calendar _strptime zoneinfo "
        "colorsys heapq bisect uuid secrets hmac hashlib"
    ),
    "testing and debugging": (
        "unittest doctest pdb bdb cmd trace traceback tracemalloc timeit profile cProfile pstats logging warnings "
        "cgitb faulthandler"
    ),
    "language and imports": (
        "ast inspect typing importlib dis tokenize lib2to3 pydoc symtable pkgutil types enum functools abc "
        "_py_abc dataclasses code codeop compileall pickletools modulefinder collections _collections_abc "
        "contextlib operator copy copyreg weakref _weakrefset pickle runpy zipimport token keyword pyclbr "
        "py_compile linecache imp opcode"
    ),
    "windows and drawing": "tkinter turtle turtledemo curses idlelib",
}
"""The labels and their top-level modules; the module names are those of Python 3.11 to 3.14."""


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out files."""
    watch = Stopwatch()
    generator = prepare(SEED)
    rng = random.Random(SEED)  # noqa: S311  (batches, not secrets)
    texts, labels = read(held_out=False)
    tokenizer = byte_pair_tokenizer(texts, VOCAB_SIZE, "$A <end>", lowercase=True)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    model = TextClassifier(
        TextClassifierConfig(
            vocab_size=tokenizer.get_vocab_size(),
            num_labels=len(TOPICS),
            max_tokens=MAX_TOKENS,
            d_model=128,
            num_heads=4,
            d_ff=256,
            num_layers=2,
            dropout=DROPOUT,
        )
    )
    order, wanted = shuffled(len(rows), BATCH, generator), torch.tensor(labels)

    def loss_of(_step: int) -> Tensor:
        chosen = next(order)
        batch = [_excerpt(rows[index], rng) for index in chosen.tolist()]
        ids = pad(batch, PAD)
        ids[torch.rand(ids.shape, generator=generator) < FORGOTTEN] = UNKNOWN
        logits = model(ids, torch.tensor([len(row) for row in batch]))
        return functional.cross_entropy(logits, wanted[chosen], label_smoothing=0.1)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.1, on_progress=on_progress)
    save_checkpoint(out, _checkpoint(model, tokenizer))
    figures = measure(out)
    figures["docstrings trained on"] = len(rows)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


def read(*, held_out: bool) -> tuple[list[str], list[int]]:
    """Return the docstrings of one part and the index of each one's topic."""
    topic_of = {module: index for index, modules in enumerate(TOPICS.values()) for module in modules.split()}
    found = [
        (docstring.text, topic_of[docstring.module])
        for docstring in read_docstrings()
        if docstring.module in topic_of
        and len(docstring.text) >= MIN_CHARACTERS
        and is_held_out(docstring.path, HELD_OUT_SHARE) == held_out
    ]
    return [text for text, _ in found], [label for _, label in found]


def measure(directory: Path) -> Figures:
    """Measure a stored checkpoint on the docstrings of files it was never trained on."""
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, TextClassifier)
    tokenizer = Tokenizer.from_str(checkpoint.files["source.json"].decode())
    texts, labels = read(held_out=True)
    guesses = classify(checkpoint.model, tokenizer, texts)
    return {
        "held-out accuracy": float(np.mean(np.array(guesses) == labels)),
        "majority baseline": Counter(labels).most_common(1)[0][1] / len(labels),
        "macro F1": float(f1_score(labels, guesses, average="macro")),
        "held-out docstrings": len(labels),
    }


def held_out() -> HeldOut:
    """Return docstrings of files that were never trained on, or what a model can read of them, and their topics."""
    texts, labels = read(held_out=True)
    # A token has a byte at least.
    short = [(text, list(TOPICS)[label]) for text, label in zip(texts, labels, strict=True) if len(text) < MAX_TOKENS]
    return random.Random(SEED).sample(short, 500)  # noqa: S311  (docstrings, not secrets)


@torch.no_grad()
def classify(model: TextClassifier, tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return the likeliest topic of each text, of which the first MAX_TOKENS count."""
    guesses: list[int] = []
    for first in range(0, len(texts), 100):
        rows = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(list(texts[first : first + 100]))]
        logits = model(pad(rows, PAD), torch.tensor([len(row) for row in rows]))
        guesses += logits.argmax(dim=-1).tolist()
    return guesses


def _excerpt(row: list[int], rng: random.Random) -> list[int]:
    """Return the beginning of a text, or some part of it, so that a long one is worth several."""
    if len(row) <= 32 or rng.random() < 0.5:
        return row[:MAX_TOKENS]
    length = rng.randint(16, min(len(row), MAX_TOKENS))
    first = rng.randint(0, len(row) - length)
    return row[first : first + length]


def _checkpoint(model: TextClassifier, tokenizer: Tokenizer) -> Checkpoint:
    return Checkpoint(
        family="text_classifier",
        description="Which part of Python's standard library a text is about",
        model=model,
        golden=bundle_pb2.Golden(text=EXAMPLE),
        text=bundle_pb2.TextSpec(
            source_tokenizer="source.json",
            source_vocab_size=model.config.vocab_size,
            pad_id=PAD,
            max_source_tokens=MAX_TOKENS,
        ),
        labels=tuple(TOPICS),
        files={"source.json": tokenizer.to_str().encode()},
    )


CARD = Card(
    name="topics",
    title="topics of documentation strings",
    summary="Tells which part of Python's standard library a text is about: " + ", ".join(TOPICS) + ".",
    data=f"""Every docstring of at least {MIN_CHARACTERS} characters in the standard library of the Python that ran
the recipe, labelled by its module; tests are left out, and so are modules that fit no topic. Of equal texts only the
first is kept. One source file in {HELD_OUT_SHARE} (by a hash of its path) is held out with all its docstrings, so a
model cannot profit from having read the neighbours.""",
    model=f"""Transformer encoder, 2 layers, width 128, 4 heads, pre-norm, mean over the tokens; float32. Byte-level
BPE, {VOCAB_SIZE:,} tokens, lower case; of a longer text the first {MAX_TOKENS} tokens were measured.""",
    notes="""- The baseline always says the topic that is commonest in the held-out part itself, the best that one
  answer can do.
- Whole files are held out, so the figure is for parts of the library that the model has never seen; many docstrings
  ("Close the file.", "Return a copy.") do not tell their topic to people either.
- It knows the language of Python's documentation; any other text gets a label all the same.""",
)
