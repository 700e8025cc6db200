"""`weft export --check` and `--graphs-only`: what would be made, and graphs without a bundle."""

import math

import pytest
import torch
from google.protobuf import json_format
from tiny import INT8, save_tiny
from typer.testing import CliRunner

from weft_export.__main__ import export_app
from weft_export.checkpoints.directory import load_checkpoint
from weft_export.estimate import duration, estimate, seconds_of, size
from weft_export.families.bert import Bert, BertConfig
from weft_export.families.decoder_only import DecoderOnly, DecoderOnlyConfig
from weft_export.graphs.graphs import states_of
from weft_export.graphs.onnx_graph import read_ports
from weft_export.layers.style import Style
from weft_export.quantization.integer_products import quantised
from weft_proto.v1 import bundle_pb2

BYTES = {bundle_pb2.DATA_TYPE_FLOAT32: 4, bundle_pb2.DATA_TYPE_INT8: 1}


def run(*arguments):
    """Run `weft export`; (exit code, stdout, the last line of stderr)."""
    done = CliRunner().invoke(export_app, [*map(str, arguments), "--quiet"])
    return done.exit_code, done.stdout, (done.stderr.splitlines() or [""])[-1]


@pytest.mark.parametrize("precision", [bundle_pb2.PRECISION_FP32, bundle_pb2.PRECISION_INT8])
@pytest.mark.parametrize("name", INT8)
def test_what_is_said_before_is_what_is_made(name, precision, tmp_path):
    """Weights and the bytes of a slot are those of what is exported, said of a checkpoint whose weights nobody read."""
    shell = load_checkpoint(save_tiny(name, tmp_path / "checkpoint"), filled=False)
    made = estimate(shell, precision, num_slots=8)
    checkpoint = load_checkpoint(tmp_path / "checkpoint")
    exported = quantised(checkpoint) if precision == bundle_pb2.PRECISION_INT8 else checkpoint

    assert all(parameter.is_meta for parameter in shell.model.parameters())
    assert sum(parameter.numel() for parameter in checkpoint.model.parameters()) == made.num_parameters
    slot = sum(math.prod(state.shape) * BYTES[state.data_type] for state in states_of(exported.model, precision))
    assert slot == made.slot_bytes
    assert 8 * slot == made.server_bytes - estimate(shell, precision).server_bytes
    if exported is checkpoint:
        tensors = (*checkpoint.model.parameters(), *checkpoint.model.buffers())
        files = sum(map(len, checkpoint.files.values()))
        weights = sum(tensor.nbytes for tensor in tensors)
        assert weights + files == pytest.approx(made.bundle_bytes, rel=0.01)


def test_a_check_says_what_adapters_take(tmp_path):
    """Of how many products, and how much memory; at what precisions there are none; and a model that takes none."""
    code, out, _ = run(save_tiny("tiny-generate", tmp_path / "gpt"), "--check", "--adapters", "2")
    assert 0 == code
    assert "with places for adapters of 10 products: one takes up to " in out
    assert "fp16         not possible: adapters are not for fp16" in out
    code, _, error = run(save_tiny("tiny-rnn", tmp_path / "rnn"), "--check", "--adapters", "2")
    assert (1, "weft export: adapters are for the layers of Transformers") == (code, error.partition(";")[0])


def test_a_check_makes_nothing(tmp_path):
    """It says family, parameters, lengths, what is not possible and why, and what is free on the disk."""
    checkpoint, place = save_tiny("tiny-rnn", tmp_path / "checkpoint"), tmp_path / "models" / "rnn" / "1"
    code, out, _ = run(checkpoint, place, "--check", "--slots", "8")

    assert 0 == code
    for part in (
        "rnn, to translate: ",
        "tokens of a source and",
        "server, 8 slots",
        "bf16         not possible: bf16 is",
    ):
        assert part in out
    assert f"free on the disk of {place}: " in out.splitlines()[-1]
    assert ["checkpoint"] == [path.name for path in tmp_path.iterdir()]


def test_a_check_without_a_place_says_what_is_free_here(tmp_path):
    """A bundle goes below the current directory, most often."""
    code, out, _ = run(save_tiny("tiny-text", tmp_path / "checkpoint"), "--check")

    assert (0, True) == (code, out.splitlines()[-1].startswith("free on the disk of the current directory: "))


def test_a_check_names_the_graphs_that_can_be_left_out(tmp_path):
    """A line each, if the model has it and it was not left out."""
    flags = {"--no-explain": "attended to", "--no-score": "how probable"}
    for name, possible in {"tiny-gpt": set(flags), "tiny-text": {"--no-explain"}}.items():
        checkpoint = save_tiny(name, tmp_path / name)
        for left_out in (set(), {"--no-explain"}, set(flags)):
            lines = run(checkpoint, "--check", *left_out)[1].splitlines()
            said = {flag for flag, what in flags.items() if any(what in line and flag in line for line in lines)}
            assert possible - left_out == said


def test_a_check_counts_a_graph_of_mixed_runs(tmp_path):
    """A line says it, and the server takes the weights twice; where it cannot be made, that is said as by an export."""
    checkpoint = save_tiny("tiny-gpt", tmp_path / "gpt")
    plain, mixed = (run(checkpoint, "--check", *flags)[1].splitlines() for flags in ([], ["--mixed-runs"]))
    shell = load_checkpoint(checkpoint, filled=False)
    once, twice = (estimate(shell, bundle_pb2.PRECISION_FP32, 8, mixed_runs=mixed) for mixed in (False, True))
    weights = sum(parameter.nbytes for parameter in shell.model.parameters())

    assert not any("--mixed-runs" in line for line in plain)
    assert 1 == sum("--mixed-runs" in line for line in mixed)
    assert twice.server_bytes - once.server_bytes == pytest.approx(weights, rel=0.05)
    assert (once.bundle_bytes, once.slot_bytes) == (twice.bundle_bytes, twice.slot_bytes)
    why = "mixed runs are not for fp16, bf16 and int4-fp16: no server runs them on a device"
    assert [f"{name:13}not possible: {why}" for name in ("fp16", "bf16", "int4-fp16")] == [
        line for line in mixed if why in line
    ]
    checkpoint = save_tiny("tiny-rnn", tmp_path / "rnn")
    refused = run(checkpoint, "--check", "--mixed-runs")
    assert (1, refused[2]) == run(checkpoint, tmp_path / "models" / "rnn" / "1", "--mixed-runs")[::2]


def test_a_check_of_blocks_says_which_precisions_have_them(tmp_path):
    """Those for a device have, others have not. A family that keeps slots is refused in an export's own sentence."""
    lines = run(save_tiny("tiny-gpt", tmp_path / "gpt"), "--check", "--paged")[1].splitlines()
    refused = {line.split()[0] for line in lines if "not possible: --paged is for fp16, bf16 and int4-fp16" in line}
    assert {"fp32", "int8", "int8-weights", "int4", "nf4"} == refused

    checkpoint = save_tiny("tiny-rnn", tmp_path / "rnn")
    told = run(checkpoint, "--check", "--paged")
    assert (1, told[2]) == run(checkpoint, tmp_path / "models" / "rnn" / "1", "--paged", "--precision", "fp16")[::2]


def test_a_check_finds_what_an_export_would(tmp_path):
    """A broken checkpoint is refused in the same sentence, and without --check a place is needed."""
    checkpoint = save_tiny("tiny-rnn", tmp_path / "checkpoint")

    assert (1, "weft export: the directory of the new bundle is missing, such as models/en-es/1") == run(checkpoint)[
        ::2
    ]
    (checkpoint / "model.safetensors").unlink()
    refused = run(checkpoint, "--check")
    assert (1, refused[2]) == run(checkpoint, tmp_path / "models" / "rnn" / "1")[::2]


def test_graphs_alone_are_for_who_has_a_runtime(tmp_path):
    """The .onnx files and their weights, and ports.json with ports and states as in a manifest; nothing else."""
    checkpoint, folder = save_tiny("tiny-gpt", tmp_path / "checkpoint"), tmp_path / "graphs"
    code, out, _ = run(checkpoint, folder, "--graphs-only")

    assert (0, True) == (code, "largest difference from torch" in out)
    ports = json_format.Parse((folder / "ports.json").read_text(), bundle_pb2.BundleManifest())
    assert [read_ports(folder / graph.path, graph.role) for graph in ports.graphs] == list(ports.graphs)
    assert len(ports.states) > 0
    kinds = {path.name.partition(".")[2] for path in folder.iterdir()}
    assert {"onnx", "onnx.data", "json"} == kinds
    assert (1, f"weft export: {folder} exists already, and is not an empty directory") == run(
        checkpoint, folder, "--graphs-only"
    )[::2]


@pytest.mark.parametrize("flag", ["--held-out", "--mixed-runs", "--no-score", "--paged", "--force"])
def test_what_means_nothing_for_graphs_alone_is_refused(flag, tmp_path):
    """By its name, and before anything is read."""
    values = [tmp_path / "held_out.jsonl"] if flag == "--held-out" else []
    code, _, told = run(tmp_path / "none", tmp_path / "graphs", "--graphs-only", flag, *values)

    assert (1, f"weft export: {flag}: of no meaning with --graphs-only") == (code, told)


def decoder(num_layers, d_model, d_ff, vocab_size, heads, **style):
    """The shape of a decoder, without weights. heads: those of queries, and those of keys and values."""
    style = {"rms_norm": True, "activation": "silu", "gated": True, "bias": False, **style}
    config = DecoderOnlyConfig(vocab_size, 2048, d_model, *heads, d_ff, num_layers, Style(**style))
    return DecoderOnly(config)


def bert():
    """The shape of BERT base, with few words."""
    return Bert(BertConfig(320, 3, max_tokens=512, d_model=768, num_heads=12, d_ff=3072, num_layers=12))


GEMMA = {"head_dim": 256, "qk_norm": True, "residual": "sandwich"}
# A shape, the bytes of its tokenizer, and the seconds that its export took at fp32. Gemma's are of the processor.
MEASURED = {
    "SmolLM2-135M": (lambda: decoder(30, 576, 1536, 49152, (9, 3)), 2_100_000, 127),
    "Gemma 3 270M": (lambda: decoder(18, 640, 2048, 262144, (4, 1), **GEMMA), 33_400_000, 178),
    "a Llama of 1,300 million": (lambda: decoder(26, 2048, 5632, 32000, (32, 8)), 1_800_000, 250),
    "a BERT of 12 layers": (bert, 10_000, 39),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_time_is_near_what_was_measured(name):
    """Within 2 times, at fp32: a small model of many layers, a large vocabulary, many weights, and none that writes."""
    make, file_bytes, measured = MEASURED[name]
    with torch.device("meta"):
        model = make()
    assert measured / 2 < seconds_of(model, bundle_pb2.PRECISION_FP32, file_bytes) < 2 * measured


def test_sizes_and_times_are_as_people_write_them():
    """Three digits and a unit."""
    assert ["0.512 kB", "1 MB", "524 kB", "2.5 GB"] == list(map(size, (512, 1e6, 524288, 2.5e9)))
    assert ["8 s", "99 s", "2 min"] == list(map(duration, (8, 99, 110)))
