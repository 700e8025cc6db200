"""The generators that are measured: Llama's shape at three sizes, with random weights."""

import shutil
from typing import NamedTuple

from tiny_parts import END, PAD, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle

# Answers then differ from request to request.
_LIVELY = 1.5


class Shape(NamedTuple):
    """Sizes; tokens is how many a sequence may have."""

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_ff: int
    vocab: int
    tokens: int


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 96, 64, 320),
    "100m": Shape(12, 768, 12, 4, 2_048, 32_000, 1_024),
    "1b": Shape(16, 2_048, 32, 8, 8_192, 128_256, 1_024),
    "8b": Shape(32, 4_096, 32, 8, 14_336, 128_256, 1_024),
}


def bundle_of(folder, name, precision):
    """Where the bundle of a shape lies."""
    return folder / name / precision / name / "1"


def write(folder, name, precision):
    """Write a checkpoint of the shape in float16, which halves an 8B one, and its bundle. Returns its parameters."""
    shutil.rmtree(folder / name, ignore_errors=True)
    checkpoint = folder / name / "checkpoint"
    save_checkpoint(checkpoint, _checkpoint(SHAPES[name]))
    bundle = bundle_of(folder, name, precision)
    export_checkpoint(
        checkpoint, bundle, ExportOptions(precision=precision, no_explain=True, no_score=True), force=True
    )
    return load_bundle(bundle).manifest.provenance.num_parameters


def paged_bundle_of(folder, name, precision):
    """Where the bundle of a shape lies whose cache lies in blocks."""
    return bundle_of(folder, name, f"{precision}-paged")


def write_paged(folder, name, precision):
    """Write such a bundle of the shape's checkpoint."""
    export_checkpoint(
        folder / name / "checkpoint",
        paged_bundle_of(folder, name, precision),
        ExportOptions(precision=precision, paged=True, no_explain=True, no_score=True),
        force=True,
    )


def _checkpoint(shape):
    config = CausalLmConfig(
        vocab_size=shape.vocab,
        max_tokens=shape.tokens,
        d_model=shape.d_model,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        d_ff=shape.d_ff,
        num_layers=shape.layers,
    )
    words = [f"w{index}" for index in range(shape.vocab - 4)]
    return Checkpoint(
        family="causal_lm",
        description="Random weights of Llama's shape, for benchmarks.",
        model=randomised(CausalLm(config), _LIVELY).half(),
        golden=bundle_pb2.Golden(text="w36 w37 w38"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=shape.vocab,
            target_vocab_size=shape.vocab,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=shape.tokens,
            max_new_tokens=shape.tokens - 1,
        ),
        max_new_tokens=64,
        attention_layer=shape.layers - 1,
        files={"tokenizer.json": word_tokenizer(words, ends=False)},
    )
