"""What a manifest may hold: an exporter refuses, at once and by its name, what a server would refuse in a bundle."""

import re
from dataclasses import replace

import pytest
from tiny import CHECKPOINTS, save_tiny, tiny_generate, tiny_image, tiny_text, tiny_translate
from tiny_parts import picture

from weft_export.bundle import manifest_of
from weft_export.checkpoints import bounds
from weft_export.checkpoints.directory import load_checkpoint
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.families import sizes
from weft_export.families.writer import RECURRENT, State
from weft_export.verification import golden
from weft_export.verification.golden import GoldenRequest
from weft_proto.bundle_rules import LIMITS, MAX_LAYERS, MAX_READ_BYTES
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.limits import verify_limits
from weft_server.errors import BundleError

FP32 = bundle_pb2.PRECISION_FP32


def test_sizes_are_within_a_manifest():
    """A size at the exporter's own limit is one that a manifest may state, and so is a golden answer."""
    text = LIMITS["TextSpec"]

    for field in ("source_vocab_size", "target_vocab_size"):
        assert text[field].maximum >= sizes.VOCABULARY
    for field in ("max_source_tokens", "max_total_tokens"):
        assert text[field].maximum >= sizes.LENGTH
    assert LIMITS["BundleManifest"]["states"].entries >= 4 * MAX_LAYERS
    assert LIMITS["Golden"]["token_ids"].entries >= golden._MAX_TOKENS


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_an_exporter_says_first_a_server_takes(name):
    """The manifest of before there are files is within every limit of a server."""
    checkpoint = CHECKPOINTS[name]()
    verify_limits(manifest_of(checkpoint, FP32, GoldenRequest(checkpoint, FP32).answer()))


def spec_of(make, key, **changes):
    """Return a checkpoint's text or image with other fields; None empties one."""
    spec = type(getattr(make(), key))()
    spec.CopyFrom(getattr(make(), key))
    for field, value in changes.items():
        spec.ClearField(field)
        if isinstance(value, list):
            getattr(spec, field).extend(value)
        elif value is not None:
            setattr(spec, field, value)
    return {key: spec}


INFINITY = float("inf")


@pytest.mark.parametrize(
    ("make", "changes", "complaint"),
    [
        (
            tiny_image,
            spec_of(tiny_image, "image", std=[INFINITY]),
            "image.std[0] is inf; it must be in [0.001,",
        ),
        (tiny_image, spec_of(tiny_image, "image", std=[1e-45]), "image.std[0] is 1.4013e-45; it must be in [0.001,"),
        (tiny_image, spec_of(tiny_image, "image", std=[0.0]), "image.std[0] is 0; it must be in"),
        (tiny_image, spec_of(tiny_image, "image", std=[float("nan")]), "image.std[0] is nan; it must be in"),
        (tiny_image, spec_of(tiny_image, "image", std=[-0.5]), "image.std[0] is -0.5; it must be in"),
        (tiny_image, spec_of(tiny_image, "image", mean=[-INFINITY]), "image.mean[0] is -inf; it must be in"),
        (tiny_image, {"description": "x" * 4097}, "description has 4097 characters; at most 4096 are allowed"),
        (tiny_image, {"labels": ("x" * 1025, *"123456789")}, "labels[0] has 1025 characters; at most 1024 are"),
        (
            tiny_translate,
            spec_of(tiny_translate, "text", prefixes=[str(i) for i in range(257)]),
            "text.prefixes has 257 entries; at most 256",
        ),
        (tiny_translate, spec_of(tiny_translate, "text", prefixes=["x" * 1025]), "text.prefixes[0] has 1025 char"),
        (
            tiny_translate,
            spec_of(tiny_translate, "text", end_ids=[3] * 257),
            "text.end_ids has 257 entries",
        ),
        (
            tiny_translate,
            spec_of(tiny_translate, "text", source_languages=["x" * 65]),
            "text.source_languages[0] has 65 characters; at most 64",
        ),
        (tiny_text, {"golden": bundle_pb2.Golden(text="x" * 65537)}, "golden.text has 65537 characters; at most 65536"),
    ],
)
def test_more_than_a_server_takes_is_refused_at_once(make, changes, complaint):
    """A checkpoint is never made of it; a server refuses a manifest with it."""
    with pytest.raises(CheckpointError, match=re.escape(complaint)):
        replace(make(), **changes)
    with pytest.raises(BundleError):
        verify_limits(bundle_pb2.BundleManifest(**changes))


def test_a_state_that_no_server_holds_is_refused():
    """The memory of one sequence has a bound, whatever it is the product of."""
    with pytest.raises(ValueError, match=r"the state '0.key' of a sequence would have 68719476736 numbers; at most"):
        bounds.check_states([State(RECURRENT, "0.key", (256, 2**17, 2**11))])


def test_a_manifest_that_no_server_reads_is_refused_before_graphs(tmp_path, monkeypatch):
    """Its size is known when labels and golden answer are; no graph is made first, and nothing is left."""
    monkeypatch.setattr("weft_export.bundle.MAX_MANIFEST_BYTES", 500)
    monkeypatch.setattr("weft_export.export.write_graph", None)
    with pytest.raises(CheckpointError, match=r"bundle\.json would have \d+ bytes or more; a server reads 500"):
        export_checkpoint(save_tiny("tiny-text", tmp_path / "checkpoint"), tmp_path / "topics" / "1")
    assert not (tmp_path / "topics").exists()


def test_a_golden_request_that_no_server_takes_is_refused(monkeypatch):
    """Too many characters, bytes, pixels or probabilities: each is named before it costs anything."""
    text, image = tiny_text(), tiny_image()
    text.golden.text = "a" * (32 * 32 + 1)
    with pytest.raises(
        CheckpointError, match=r"the golden text has 1025 characters; a server takes 1024 for 32 tokens"
    ):
        GoldenRequest(text, FP32).answer()
    large = replace(image, files={"golden.png": picture(5000, 4000, "L")})
    with pytest.raises(
        CheckpointError, match=r"golden\.png has 5000 x 4000 pixels; a server takes pictures of 16777216"
    ):
        GoldenRequest(large, FP32).answer()
    heavy = replace(image, files={"golden.png": bytes(2**23 + 1)})
    with pytest.raises(CheckpointError, match=r"golden\.png has 8388609 bytes; a server takes pictures of 8388608"):
        GoldenRequest(heavy, FP32).answer()
    monkeypatch.setattr(golden, "MAX_PROBABILITIES", 9)
    with pytest.raises(CheckpointError, match="the golden answer has 10 probabilities; at most 9 are allowed"):
        GoldenRequest(image, FP32).answer()


def test_a_golden_answer_has_an_end(monkeypatch):
    """However long a request's default may be, a golden answer stops after so many tokens."""
    monkeypatch.setattr(golden, "_MAX_TOKENS", 3)
    assert 3 == len(GoldenRequest(tiny_generate(), FP32).answer().token_ids)


def test_a_tokenizer_of_a_hundred_megabytes_is_refused(tmp_path):
    """A server reads no file of more than 64 MiB whole."""
    directory = save_tiny("tiny-text", tmp_path)
    with (directory / "tokenizer.json").open("r+b") as file:
        file.truncate(MAX_READ_BYTES + 1)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has 67108865 bytes; 67108864 are allowed"):
        load_checkpoint(directory)
