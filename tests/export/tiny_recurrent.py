"""Tiny random checkpoints of the recurrent families."""

import functools

import torch
from tiny_parts import (
    END,
    PAD,
    SOURCE_WORDS,
    START,
    TARGET_WORDS,
    image_spec,
    picture,
    randomised,
    word_tokenizer,
)

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.attention_rnn import AttentionRnn, AttentionRnnConfig
from weft_export.families.rnn import Rnn, RnnConfig
from weft_export.families.show_attend_tell import ShowAttendTell, ShowAttendTellConfig
from weft_export.families.writer import Writer
from weft_proto.v1 import bundle_pb2

SOURCE, TARGET = len(SOURCE_WORDS) + 4, len(TARGET_WORDS) + 4
MAX_SOURCE, MAX_TARGET = 20, 24


def tiny_rnn(cell: str, *, reverse_source: bool) -> Checkpoint:
    """Return a translator with two layers of a cell."""
    config = RnnConfig(
        source_vocab_size=SOURCE,
        target_vocab_size=TARGET,
        max_source_tokens=MAX_SOURCE,
        max_target_tokens=MAX_TARGET,
        cell=cell,
        d_embedding=24,
        d_hidden=32,
        num_layers=2,
        reverse_source=reverse_source,
    )
    return _translator("rnn", _random(Rnn(config)), None)


def tiny_attention_rnn() -> Checkpoint:
    """Return a translator with additive attention, every width another one."""
    config = AttentionRnnConfig(
        source_vocab_size=SOURCE,
        target_vocab_size=TARGET,
        max_source_tokens=MAX_SOURCE,
        max_target_tokens=MAX_TARGET,
        d_embedding=24,
        d_hidden=32,
        d_attention=20,
        d_maxout=28,
    )
    return _translator("attention_rnn", _random(AttentionRnn(config)), 0)


def tiny_show_tell() -> Checkpoint:
    """Return a captioner of 24 x 16 colour pictures in 4 rows of 6 annotations."""
    config = ShowAttendTellConfig(
        target_vocab_size=TARGET,
        max_target_tokens=MAX_TARGET,
        channels=3,
        image_height=16,
        image_width=24,
        convolution_widths=(8, 20),
        d_embedding=24,
        d_hidden=32,
        d_attention=28,
    )
    return Checkpoint(
        family="show_attend_tell",
        description="A random captioner for tests.",
        model=_random(ShowAttendTell(config)),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        text=_text(),
        image=image_spec(3, 16, 24, 4),
        max_new_tokens=16,
        attention_layer=0,
        files={"target.json": word_tokenizer(TARGET_WORDS, ends=False), "golden.png": picture(30, 22)},
    )


def _random(model: Writer) -> Writer:
    randomised(model, 3.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # A large weight from state to state is chaos: it grows the last bit of a rounding to another answer.
            if "weight_hh" in name:
                parameter.div_(3)
            if "convolution" in name and parameter.dim() > 1:
                parameter.div_(
                    2 * parameter[0, :, :, 0].numel() ** 0.5
                )  # each sums nine pixels of all channels, and three follow each other
    return model


def _translator(family: str, model: Writer, attention_layer: int | None) -> Checkpoint:
    text = _text()
    text.MergeFrom(
        bundle_pb2.TextSpec(
            source_tokenizer="source.json",
            source_vocab_size=SOURCE,
            max_source_tokens=MAX_SOURCE,
            source_languages=["en"],
            target_languages=["es"],
        )
    )
    return Checkpoint(
        family=family,
        description="A random translator for tests.",
        model=model,
        golden=bundle_pb2.Golden(text="the cat eats"),
        text=text,
        max_new_tokens=16,
        attention_layer=attention_layer,
        files={
            "source.json": word_tokenizer(SOURCE_WORDS, ends=True),
            "target.json": word_tokenizer(TARGET_WORDS, ends=False),
        },
    )


def _text() -> bundle_pb2.TextSpec:
    return bundle_pb2.TextSpec(
        target_tokenizer="target.json",
        target_vocab_size=TARGET,
        start_id=START,
        end_ids=[END],
        pad_id=PAD,
        max_total_tokens=MAX_TARGET,
        max_new_tokens=MAX_TARGET,
    )


RECURRENT = {
    "tiny-rnn": functools.partial(tiny_rnn, "lstm", reverse_source=True),
    "tiny-rnn-gru": functools.partial(tiny_rnn, "gru", reverse_source=False),
    "tiny-rnn-vanilla": functools.partial(tiny_rnn, "rnn", reverse_source=True),
    "tiny-attention-rnn": tiny_attention_rnn,
    "tiny-show-tell": tiny_show_tell,
}
