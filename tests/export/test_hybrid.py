"""Models of which some layers attend and others keep a state: the layers, and what is refused by its name."""

from dataclasses import replace

import pytest
import torch
from tiny import save_tiny
from tiny_hybrid import TAPS, tiny_hybrid

from weft_export.errors import ExportError
from weft_export.export import export_checkpoint
from weft_export.layers.causal_convolution import CausalConvolution
from weft_export.layers.style import Style
from weft_export.options import ExportOptions

WIDTH, SEQ = 5, 11


@torch.inference_mode()
@pytest.mark.parametrize("pieces", [[1] * SEQ, [4, 7], [2, 1, 8]])
def test_a_convolution_in_pieces_has_the_bits_of_the_whole(pieces):
    """However it is cut, and whatever stands in the padding of each row; the state is what it still looks at."""
    torch.manual_seed(0)
    convolution = CausalConvolution(WIDTH, TAPS, bias=True)
    x = torch.randn(2, SEQ, WIDTH)
    past, found, done = torch.zeros(2, TAPS - 1, WIDTH), [], 0
    for size in pieces:
        padded = torch.cat((x[:, done : done + size], torch.full((2, 3, WIDTH), torch.nan)), dim=1)
        out, past = convolution.step(padded, past, torch.tensor([size, size], dtype=torch.int32))
        found.append(out[:, :size])
        done += size
    assert torch.equal(convolution(x), torch.cat(found, dim=1))
    assert torch.equal(x[:, 1 - TAPS :], past)


@torch.inference_mode()
def test_a_convolution_is_torchs():
    """As nn.Conv1d of each channel by itself, padded on the left."""
    torch.manual_seed(0)
    ours = CausalConvolution(WIDTH, TAPS, bias=True)
    theirs = torch.nn.Conv1d(WIDTH, WIDTH, TAPS, groups=WIDTH, padding=TAPS - 1)
    theirs.weight.copy_(ours.weight.t()[:, None])
    theirs.bias.copy_(ours.bias)
    x = torch.randn(2, SEQ, WIDTH)
    torch.testing.assert_close(ours(x), theirs(x.transpose(1, 2))[:, :, :SEQ].transpose(1, 2))


@torch.inference_mode()
def test_rows_of_other_lengths_share_a_run():
    """Each row's state is what it is behind its own last real token."""
    torch.manual_seed(0)
    convolution = CausalConvolution(WIDTH, TAPS, bias=False)
    x, past = torch.randn(3, SEQ, WIDTH), torch.randn(3, TAPS - 1, WIDTH)
    lengths = torch.tensor([1, 2, SEQ], dtype=torch.int32)
    _, presents = convolution.step(x, past, lengths)
    for row, length in enumerate(lengths.tolist()):
        seen = torch.cat((past[row], x[row, :length]))
        assert torch.equal(seen[1 - TAPS :], presents[row])


REFUSED = [
    ({"precision": "fp16"}, "keep states beside attention run on CPU: fp16, bf16 and int4-fp16 are not for them"),
    ({"precision": "bf16"}, "keep states beside attention run on CPU"),
    ({"precision": "fp16", "paged": True}, "--paged is not for .*: .*its layers keep a state of constant size"),
    ({"mixed_runs": True}, "mixed runs are not for models that keep states beside attention"),
    ({"adapters": 4}, "adapters are not for models that keep states beside attention"),
]


@pytest.mark.parametrize("name", ["tiny-hybrid", "tiny-mamba", "tiny-rwkv"])
@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_what_is_not_for_them_is_refused(name, asked, why, tmp_path):
    """By its name, and nothing is written."""
    checkpoint = save_tiny(name, tmp_path / "checkpoint")
    with pytest.raises(ExportError, match=why):
        export_checkpoint(checkpoint, tmp_path / "hybrid" / "1", ExportOptions(**asked))
    assert not (tmp_path / "hybrid").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"attends": ()}, r"model.attends must have a 1"),
        ({"attends": (0, 0, 0)}, r"model.attends must have a 1"),
        ({"attends": (0, 1)}, r"model.attends must be empty, or have 3 whole numbers in \[0, 1\]"),
        ({"attends": (0, 2, 1)}, r"model.attends must be empty, or have 3 whole numbers in \[0, 1\]"),
        ({"style": Style()}, "model.norms_turned is of style.qk_norm, of each head: it stands with that"),
        ({"style": Style(qk_norm=True, whole_qk_norm=True)}, "model.norms_turned is of style.qk_norm, of each head"),
        ({"convolution_taps": 1}, "model.convolution_taps must be at least 2"),
        ({"convolution_taps": 65}, r"model.convolution_taps must be a whole number in \[1, 64\]"),
    ],
)
def test_sizes_that_are_none_are_refused(change, complaint):
    """Each by its name."""
    with pytest.raises(ValueError, match=complaint):
        replace(tiny_hybrid().model.config, **change)
