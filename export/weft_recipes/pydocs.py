"""Recipe `pydocs`: a small causal language model of Python's own documentation strings."""

import math
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.console import OnProgress
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, prepare
from weft_recipes.shared.vocabulary import END, PAD, byte_pair_tokenizer
from weft_recipes.texts.bigram import Bigram
from weft_recipes.texts.docstrings import is_held_out, read_docstrings, read_topics

SEED = 53
HELD_OUT_SHARE = 20
"""One in so many source files, and as many topics of the reference, are never trained on."""
VOCAB_SIZE, CONTEXT = 1_536, 256
BATCH, NUM_STEPS, PEAK_LR = 16, 700, 5e-3
EXAMPLE = "Return a list of"


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out files."""
    watch = Stopwatch()
    generator = prepare(SEED)
    texts = read(held_out=False)
    tokenizer = byte_pair_tokenizer(texts, VOCAB_SIZE, "<start> $A", lowercase=False)
    stream = encode(tokenizer, texts)
    model = CausalLm(
        CausalLmConfig(
            vocab_size=tokenizer.get_vocab_size(),
            max_tokens=CONTEXT,
            d_model=128,
            num_heads=4,
            num_kv_heads=2,
            d_ff=352,
            num_layers=4,
        )
    )

    def loss_of(_step: int) -> Tensor:
        firsts = torch.randint(len(stream) - CONTEXT, (BATCH,), generator=generator)
        rows = torch.stack([stream[first : first + CONTEXT + 1] for first in firsts.tolist()])
        return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.1, on_progress=on_progress)
    save_checkpoint(out, _checkpoint(model, tokenizer))
    figures = measure(out)
    figures["tokens trained on"] = len(stream)
    figures["passes over them"] = round(NUM_STEPS * BATCH * CONTEXT / len(stream), 1)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


def read(*, held_out: bool) -> list[str]:
    """Return the texts of one part: docstrings and the topics of the language reference."""
    return [
        docstring.text
        for docstring in (*read_docstrings(), *read_topics())
        if is_held_out(docstring.path, HELD_OUT_SHARE) == held_out
    ]


def encode(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """Return all texts as one row of token ids, each between <start> and <end>."""
    return torch.tensor([token for encoding in tokenizer.encode_batch(texts) for token in (*encoding.ids, END)])


@torch.no_grad()
def measure(directory: Path) -> Figures:
    """Measure a stored checkpoint on held-out files, and a bigram model on the same tokens."""
    checkpoint = load_checkpoint(directory)
    tokenizer = Tokenizer.from_str(checkpoint.files["tokenizer.json"].decode())
    texts = read(held_out=True)
    stream = encode(tokenizer, texts)
    bigram = Bigram(encode(tokenizer, read(held_out=False)), tokenizer.get_vocab_size())
    losses = []
    # Pieces of CONTEXT tokens; each piece but the first begins with the last token of the one before.
    for first in range(0, len(stream) - 1, CONTEXT):
        piece = stream[first : first + CONTEXT + 1]
        logits = checkpoint.model(piece[None, :-1])[0]
        losses.append(functional.cross_entropy(logits, piece[1:], reduction="sum").item())
    num_predicted, num_bytes = len(stream) - 1, sum(len(text.encode()) for text in texts)
    total, total_bigram = sum(losses), bigram.loss(stream)
    return {
        "held-out loss, nats per token": total / num_predicted,
        "bigram model, nats per token": total_bigram / num_predicted,
        "held-out bits per byte": total / math.log(2) / num_bytes,
        "bigram model, bits per byte": total_bigram / math.log(2) / num_bytes,
        "held-out tokens": num_predicted,
    }


def held_out() -> HeldOut:
    """Return texts of files that were never trained on: their first 40 characters, and up to 200 that follow."""
    texts = [text for text in read(held_out=True) if len(text) >= 80]
    some = random.Random(SEED).sample(texts, 200)  # noqa: S311  (docstrings, not secrets)
    return [(text[:40], text[40:240]) for text in some]


@torch.no_grad()
def continue_greedily(model: CausalLm, tokenizer: Tokenizer, prompt: str, max_new_tokens: int) -> str:
    """Return a prompt with its likeliest continuation, for looking at."""
    ids = tokenizer.encode(prompt).ids
    while len(ids) < CONTEXT and max_new_tokens > 0:
        following = int(model(torch.tensor([ids]))[0, -1].argmax())
        if following == END:
            break
        ids.append(following)
        max_new_tokens -= 1
    return tokenizer.decode(ids)


def _checkpoint(model: CausalLm, tokenizer: Tokenizer) -> Checkpoint:
    return Checkpoint(
        family="causal_lm",
        description="A small language model of Python's documentation strings",
        model=model,
        golden=bundle_pb2.Golden(text=EXAMPLE),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=model.config.vocab_size,
            target_vocab_size=model.config.vocab_size,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=CONTEXT,
            max_new_tokens=CONTEXT,
        ),
        max_new_tokens=64,
        attention_layer=0,
        files={"tokenizer.json": tokenizer.to_str().encode()},
    )


CARD = Card(
    name="pydocs",
    title="a language model of Python's documentation",
    summary="Continues a text in the manner of Python's documentation strings.",
    data=f"""Every docstring of the standard library (tests left out, of equal texts only the first) and the language
reference that `help()` shows (`pydoc_data`), of the Python that ran the recipe. One source file in {HELD_OUT_SHARE},
and one reference topic in {HELD_OUT_SHARE}, is held out (by a hash of its path).""",
    model=f"""Decoder-only Transformer: 4 layers, width 128, 4 query heads over 2 key and value heads, rotary
positions, RMSNorm, SwiGLU, tied embedding; float32. Byte-level BPE of {VOCAB_SIZE:,} tokens trained on the training
part; context {CONTEXT} tokens.""",
    notes="""- It has the words and the look of documentation, not its truth: do not believe what it says.
- The bigram model is interpolated Kneser-Ney over the same tokens of the same training part. Held-out text is cut
  into pieces of the context's length, so the first tokens of a piece are predicted from little; bits per byte count
  the text without the end tokens.""",
)
