"""Checkpoints of the shapes, and their bundles. What only runs bundles needs no torch."""

import shutil
from dataclasses import replace

from shapes import SHAPES, bundle_of, paged_bundle_of
from tiny_parts import END, PAD, START, randomised, word_tokenizer
from torch import nn

from weft_export.bundle import manifest_of, provenance_of, write_manifest
from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.sharing import without_weights
from weft_export.checkpoints.weights import WEIGHTS_FILE
from weft_export.export import export_checkpoint
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.options import ExportOptions
from weft_export.quantization.quantized import quantized
from weft_export.verification.golden import GoldenRequest
from weft_export.verification.session import runtime_version
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle

# Answers then differ from request to request.
_LIVELY = 1.5


def checkpoint_of(folder, name, precision):
    """A shape's checkpoint as a bundle of the precision has it, in float32."""
    one = quantized(load_checkpoint(folder / name / "checkpoint"), ExportOptions(precision=precision).number)
    return _repeated(one, SHAPES[name].layers) if SHAPES[name].shared else one


def write(folder, name, precision):
    """Write a checkpoint of the shape, in float16, unless it is there, and its bundle. Returns its parameters."""
    checkpoint = folder / name / "checkpoint"
    if not checkpoint.is_dir():
        save_checkpoint(checkpoint, _checkpoint(SHAPES[name]))
    return _export(folder, name, precision, bundle_of(folder, name, precision), paged=False)


def write_paged(folder, name, precision):
    """Write the bundle of the shape's checkpoint whose cache lies in blocks."""
    _export(folder, name, precision, paged_bundle_of(folder, name, precision), paged=True)


def _export(folder, name, precision, bundle, *, paged):
    if SHAPES[name].shared:
        _write_bundle(folder, name, precision, bundle, paged=paged)
    else:
        options = ExportOptions(precision=precision, paged=paged, no_explain=True, no_score=True)
        export_checkpoint(folder / name / "checkpoint", bundle, options, force=True)
    return load_bundle(bundle).manifest.provenance.num_parameters


def _write_bundle(folder, name, precision, bundle, *, paged):
    """Do as an export, of a model whose layers are one. The graph has their weights once, and parity is a piece."""
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir(parents=True)
    number = ExportOptions(precision=precision).number
    checkpoint = replace(checkpoint_of(folder, name, precision), explains=False, paged=paged)
    graphs = graphs_of(checkpoint, number)
    for graph in graphs:
        write_graph(graph, bundle)
    for path, content in checkpoint.files.items():
        (bundle / path).write_bytes(content)
    golden = GoldenRequest(checkpoint, number).answer()
    provenance = provenance_of(checkpoint, [folder / name / "checkpoint" / WEIGHTS_FILE], runtime_version())
    provenance.num_parameters = _num_read(SHAPES[name])
    manifest = manifest_of(checkpoint, number, golden)
    write_manifest(bundle, manifest, graphs, parity=bundle_pb2.Parity(), provenance=provenance)


def _num_read(shape):
    """How many weights a step reads, those of a layer once for each that has them."""
    with without_weights():
        return sum(weight.numel() for weight in CausalLm(_sizes(shape)).parameters())


def _repeated(checkpoint, layers):
    """Return a checkpoint whose layers are all the first one of another."""
    one = checkpoint.model
    with without_weights():
        model = CausalLm(replace(one.config, num_layers=layers))
    model.embedding, model.norm = one.embedding, one.norm
    model.layers = nn.ModuleList([one.layers[0]] * layers)
    return replace(checkpoint, model=model.eval(), attention_layer=layers - 1)


def _sizes(shape):
    return CausalLmConfig(
        vocab_size=shape.vocab,
        max_tokens=shape.tokens,
        d_model=shape.d_model,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        d_ff=shape.d_ff,
        num_layers=shape.layers,
    )


def _checkpoint(shape):
    if shape.translates:
        model = randomised(EncoderDecoder(_translator(shape)), _LIVELY)
    else:
        model = randomised(CausalLm(_sizes(shape._replace(layers=1) if shape.shared else shape)), _LIVELY)
    words = [f"w{index}" for index in range(shape.vocab - 4)]
    text = {"start_id": START, "max_source_tokens": shape.tokens} if shape.translates else {}
    names = {"source.json": True, "target.json": False} if shape.translates else {"tokenizer.json": False}
    return Checkpoint(
        family="encoder_decoder" if shape.translates else "causal_lm",
        description="Random weights, for benchmarks.",
        model=model.half(),
        golden=bundle_pb2.Golden(text="w36 w37 w38"),
        text=bundle_pb2.TextSpec(
            source_tokenizer=min(names),
            target_tokenizer=max(names),
            source_vocab_size=shape.vocab,
            target_vocab_size=shape.vocab,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=shape.tokens,
            max_new_tokens=shape.tokens - 1,
            **text,
        ),
        max_new_tokens=64,
        attention_layer=len(getattr(model, "layers", range(shape.layers))) - 1,
        files={name: word_tokenizer(words, ends=ends) for name, ends in names.items()},
    )


def _translator(shape):
    return EncoderDecoderConfig(
        source_vocab_size=shape.vocab,
        target_vocab_size=shape.vocab,
        max_source_tokens=shape.tokens,
        max_target_tokens=shape.tokens,
        d_model=shape.d_model,
        num_heads=shape.heads,
        d_ff=shape.d_ff,
        num_encoder_layers=shape.layers,
        num_decoder_layers=shape.layers,
    )
