"""Recurrent layers, additive attention and convolutions, and the families made of them."""

import dataclasses

import pytest
import torch
from tiny_recurrent import RECURRENT
from torch.nn import functional

from weft_export.layers.additive_attention import AdditiveAttention, mask_of
from weft_export.layers.convolution import ConvolutionStack
from weft_export.layers.recurrent import CELLS, Recurrence
from weft_export.layers.run import Run

BATCH, SEQ, WIDTH, HIDDEN = 4, 9, 5, 7
LENGTHS = torch.tensor([9, 1, 4, 6], dtype=torch.int32)
TRANSLATORS = [name for name in RECURRENT if name != "tiny-show-tell"]
ATTENTIVE = ["tiny-attention-rnn", "tiny-show-tell"]


@pytest.fixture(autouse=True)
def _without_gradients():
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def a_layer(cell, **kinds):
    """Make a layer, and a first state that is not zero."""
    layer = Recurrence(cell, WIDTH, HIDDEN, **kinds)
    return layer, tuple(torch.randn(BATCH, HIDDEN) for _ in layer.parts)


def source_of(name, batch=3):
    """Make a random source for a tiny checkpoint: ragged ids and their lengths, or pictures."""
    if name == "tiny-show-tell":
        return (torch.randn(batch, 3, 16, 24),)
    return torch.randint(4, 20, (batch, 11)), torch.tensor([4, 11, 1][:batch], dtype=torch.int32)


@pytest.mark.parametrize("cell", CELLS)
def test_steps_by_the_formula_are_torchs_layer(cell):
    """Step by step through the formula, a layer gives what torch's layer of that name gives."""
    layer, hidden = a_layer(cell)
    x = torch.randn(BATCH, SEQ, WIDTH)
    expected = layer(x, hidden)

    for position in range(SEQ):
        hidden = layer.step(x[:, position], hidden)
        torch.testing.assert_close(hidden[0], expected[:, position])


def test_a_gru_keeps_or_replaces_its_state():
    """With z at 1 the old state stays; with z at 0 and r at 1 it is a plain RNN, which graphs rely on."""
    gru, hidden = a_layer("gru")
    plain = Recurrence("rnn", WIDTH, HIDDEN)
    x = torch.randn(BATCH, WIDTH)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        gru.layer.get_parameter(name).zero_()
        gru.layer.get_parameter(name)[2 * HIDDEN :] = plain.layer.get_parameter(name)

    gru.layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] = 100
    torch.testing.assert_close(gru.step(x, hidden), hidden)
    gru.layer.bias_ih_l0[:HIDDEN] = 100
    gru.layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] = -100
    torch.testing.assert_close(gru.step(x, hidden), plain.step(x, hidden))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_ragged_rows_are_read_as_if_alone(cell, reverse):
    """Each row of a ragged batch is read from its own first to its own last word, or the other way round."""
    layer, _ = a_layer(cell)
    x = torch.randn(BATCH, SEQ, WIDTH)
    out, last = layer.encode(x, LENGTHS, reverse=reverse)

    for row, length in enumerate(LENGTHS.tolist()):
        order = list(range(length))[:: -1 if reverse else 1]
        hidden = tuple(torch.zeros(1, HIDDEN) for _ in layer.parts)
        for position in order:
            hidden = layer.step(x[row, position][None], hidden)
            torch.testing.assert_close(out[row, position], hidden[0][0])
        torch.testing.assert_close(tuple(part[0, row] for part in last), tuple(part[0] for part in hidden))


def test_two_directions_are_two_layers():
    """A bidirectional layer puts side by side what one layer forwards and another backwards read."""
    both, _ = a_layer("gru", bidirectional=True)
    x = torch.randn(BATCH, SEQ, WIDTH)
    out, (last,) = both.encode(x, LENGTHS)

    for direction, suffix in enumerate(("", "_reverse")):
        one = Recurrence("gru", WIDTH, HIDDEN)
        for name, parameter in one.layer.named_parameters():
            parameter.copy_(both.layer.get_parameter(name + suffix))
        alone, (alone_last,) = one.encode(x, LENGTHS, reverse=direction == 1)
        half = out[:, :, direction * HIDDEN :][:, :, :HIDDEN]
        for row, length in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(half[row, :length], alone[row, :length])
        torch.testing.assert_close(last[direction], alone_last[0])


def test_additive_attention_is_its_formula():
    """Weights are softmax(v tanh(W s + U h)) over the real annotations, and the context is their mean by weight."""
    attention = AdditiveAttention(HIDDEN, WIDTH, 6)
    state, annotations = torch.randn(BATCH, HIDDEN), torch.randn(BATCH, SEQ, WIDTH)
    context, weights = attention(state, annotations, attention.key(annotations), mask_of(LENGTHS, SEQ))

    w, bias, u, v = attention.query.weight, attention.query.bias, attention.key.weight, attention.energy.weight[0]
    for row, length in enumerate(LENGTHS.tolist()):
        energies = torch.stack([v @ (w @ state[row] + bias + u @ h).tanh() for h in annotations[row, :length]])
        torch.testing.assert_close(weights[row, :length], energies.softmax(0))
        torch.testing.assert_close(context[row], energies.softmax(0) @ annotations[row, :length])
        assert 0 == weights[row, length:].abs().sum()


@pytest.mark.parametrize("rubbish", [1e30, -1e30])
def test_nothing_behind_a_memorys_end_is_read(rubbish):
    """Any finite rubbish behind a memory's end changes no bit; a memory of nothing is at least no NaN."""
    attention = AdditiveAttention(HIDDEN, WIDTH, 6)
    state, annotations, keys = torch.randn(BATCH, HIDDEN), torch.randn(BATCH, SEQ, WIDTH), torch.randn(BATCH, SEQ, 6)
    lengths = torch.tensor([9, 1, 4, 0], dtype=torch.int32)
    expected = attention(state, annotations, keys, mask_of(lengths, SEQ))
    for row, length in enumerate(lengths.tolist()):
        annotations[row, length:], keys[row, length:] = rubbish, -rubbish
    actual = attention(state, annotations, keys, mask_of(lengths, SEQ))

    for one, other in zip(expected, actual, strict=True):
        assert torch.equal(one[:3], other[:3])
        assert bool(other.isfinite().all())


def test_a_convolution_stack_gives_the_grid_in_reading_order():
    """Annotations are the last feature map row by row; what changes in one corner does not reach the other."""
    stack = ConvolutionStack(3, (8, 12)).eval()
    for block in stack.blocks:
        block.norm.running_mean.normal_()
        block.norm.running_var.uniform_(0.5, 2)
    pixels = torch.randn(2, 3, 32, 64)
    expected = pixels
    for block in stack.blocks:
        weight, norm = block.convolution.weight, block.norm
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        mapped = functional.conv2d(expected, weight, stride=block.convolution.stride, padding=1)
        shifted = mapped - norm.running_mean[:, None, None]
        expected = (shifted * scale[:, None, None] + norm.bias[:, None, None]).clamp(min=0)

    assert (2, 8 * 16, 12) == stack(pixels).shape
    torch.testing.assert_close(stack(pixels)[:, 16 * 3 + 5], expected[:, :, 3, 5])
    changed = pixels.clone()
    changed[:, :, -1, -1] += 1
    assert torch.equal(stack(pixels)[:, 0], stack(changed)[:, 0])
    assert not torch.equal(stack(pixels)[:, -1], stack(changed)[:, -1])


@pytest.mark.parametrize("axis", [2, 3])
def test_an_annotation_sees_as_far_on_either_side(axis):
    """What reaches an annotation lies evenly about the cell of the picture that a map of attention shows it in."""
    stack = ConvolutionStack(1, (4, 4)).eval()
    pixels = torch.randn(1, 1, 64, 64)
    before = stack(pixels)[:, 16 * 8 + 8]
    reached = []
    for index in range(64):
        changed = pixels.clone()
        changed.select(axis, index).add_(9)
        if not torch.equal(stack(changed)[:, 16 * 8 + 8], before):
            reached.append(index)

    assert 32 + 35 == reached[0] + reached[-1]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_what_stands_behind_a_sources_end_has_no_influence(name):
    """The logits of a source are the same alone and in a wider, ragged batch with rubbish behind its end."""
    model = RECURRENT[name]().model
    ids, lengths = source_of(name)
    target = torch.randint(4, 20, (3, 6))
    together = model.decode(target, ids, lengths)

    for row, length in enumerate(lengths.tolist()):
        alone = model.decode(target[row : row + 1], ids[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_alignment_is_what_the_steps_looked_at(name):
    """An explanation has, for each target token, the weights of its step."""
    model = RECURRENT[name]().model
    source, target = tuple(part[:1] for part in source_of(name)), torch.randint(4, 20, (1, 6))
    annotations, lengths, hidden = model.annotate(*source)
    memory = annotations, model.attention.key(annotations)
    layer = head = torch.zeros(1, dtype=torch.int64)
    weights, mass = model.explain(layer, head, target, *source)

    torch.testing.assert_close(mass, torch.ones(6))
    for position in range(6):
        _, seen = model.look(hidden[0], memory, mask_of(lengths, annotations.shape[1]))
        torch.testing.assert_close(weights[position], seen[0])
        run = Run(target[:, position : position + 1], lengths, lengths, lengths, lengths)
        _, hidden = model.step(run, (*memory, *hidden))


def test_a_fixed_context_does_not_grow():
    """The states of an RNN are as large for any source; those with attention grow with it."""
    rnn, attentive = RECURRENT["tiny-rnn"]().model, RECURRENT["tiny-attention-rnn"]().model
    for length in (3, 17):
        source = torch.randint(4, 20, (1, length)), torch.tensor([length], dtype=torch.int32)
        assert [(1, 32)] * 4 == [tuple(state.shape) for state in rnn.encode_states(*source)]
        assert [(1, length, 64), (1, length, 20), (1, 32)] == [
            tuple(state.shape) for state in attentive.encode_states(*source)
        ]


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("tiny-rnn", {"cell": "transformer"}, "cell must be one of rnn, gru, lstm"),
        ("tiny-rnn", {"num_layers": 0}, "num_layers must be"),
        ("tiny-rnn", {"reverse_source": 1}, "reverse_source must be true or false"),
        ("tiny-attention-rnn", {"d_maxout": 0}, "d_maxout must be"),
        ("tiny-show-tell", {"convolution_widths": ()}, "convolution_widths must have between 1 and 12 numbers"),
        ("tiny-show-tell", {"convolution_widths": (8, 0)}, r"convolution_widths\[1\] must be"),
        ("tiny-show-tell", {"image_width": 30}, r"multiple of 2 \*\* len"),
    ],
)
def test_sizes_that_cannot_work_are_refused(name, change, complaint):
    """A config that no graph can be made of is refused with the size's name."""
    with pytest.raises((ValueError, TypeError), match=complaint):
        dataclasses.replace(RECURRENT[name]().model.config, **change)
