"""Families that look at pictures: windows and their shifts, positions on a grid, rollout through a hierarchy."""

import copy
import itertools

import pytest
import torch
from tiny_vision import tiny_deit, tiny_resnet, tiny_swin
from torch import nn

from weft_export.families.swin import PatchMerging, SwinConfig
from weft_export.layers.explaining import rollout
from weft_export.layers.grid_positions import GridBias, GridKeys, grid_offsets
from weft_export.layers.residual import AttentionBlock
from weft_export.layers.windows import WindowAttention, pick_windows, place_of, window_mask, window_positions

GRID, WINDOW = (4, 6), (2, 3)
SHIFTS = [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
DEFAULT = torch.tensor([-1])
THREE_STAGES = {"depths": (1, 1, 1), "num_heads": (1, 1, 1)}


def neighbours(grid, window, shift):
    """Bool [n, n] as the paper tells it: cut the grid at lines a window apart, the first of them at the shift.

    Two positions are neighbours when no line is between them. Windows cut short by the edge stay short.
    """
    cells = list(itertools.product(range(grid[0]), range(grid[1])))

    def tile(cell):
        return tuple((at - by) // side for at, side, by in zip(cell, window, shift, strict=True))

    return torch.tensor([[tile(a) == tile(b) for b in cells] for a in cells])


def as_matrix(weights, positions, num_positions):
    """Weights [windows, w, w] within windows as one [n, n] with 0 between them."""
    matrix = torch.zeros(num_positions, num_positions)
    for inside, places in zip(weights, positions, strict=True):
        matrix[places[:, None], places] = inside
    return matrix


@pytest.mark.parametrize("shift", SHIFTS)
def test_windows_are_put_back_where_they_were(shift):
    """Partition into windows, shifted or not, and merging are inverse: every position lies in exactly one window."""
    positions = window_positions(GRID, WINDOW, shift)
    x = torch.randn(2, 24, 5)

    windows = pick_windows(x, positions)

    assert (2, 4, 6, 5) == windows.shape
    assert torch.equal(x, windows.flatten(1, 2)[:, place_of(positions)])


def test_a_shift_is_a_roll():
    """Shifted windows are the windows of the grid rolled up and to the left, as in the paper's figure 4."""
    grid = torch.arange(24).view(4, 6)
    for down, across in SHIFTS:
        rolled = grid.roll((-down, -across), dims=(0, 1)).flatten()

        assert torch.equal(rolled[window_positions(GRID, WINDOW)], window_positions(GRID, WINDOW, (down, across)))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_mask_keeps_to_neighbours(shift):
    """Two positions may attend to each other exactly when the unrolled picture has them in one window."""
    positions = window_positions(GRID, WINDOW, shift)
    allowed = as_matrix(window_mask(GRID, WINDOW, shift).float(), positions, 24) > 0

    assert torch.equal(neighbours(GRID, WINDOW, shift), allowed)


@torch.inference_mode()
@pytest.mark.parametrize("shift", SHIFTS)
def test_window_attention_is_masked_attention_over_the_whole_grid(shift):
    """(S)W-MSA is softmax(Q K^T / sqrt(d) + B) V over all pairs of positions, all but neighbours hidden."""
    torch.manual_seed(0)
    attention = WindowAttention(GRID, WINDOW, shift, d_model=8, num_heads=2)
    nn.init.normal_(attention.bias.table)
    x = torch.randn(3, 24, 8)
    query, key, value = attention.qkv(x).view(3, 24, 3, 2, 4).permute(2, 0, 3, 1, 4)
    bias = torch.zeros(2, 24, 24)
    for i, j in itertools.product(range(24), repeat=2):
        down, across = i // 6 - j // 6, i % 6 - j % 6
        if abs(down) < 2 and abs(across) < 3:
            # The table's lines are offsets: -1..1 down, and for each of them -2..2 across.
            bias[:, i, j] = attention.bias.table[(down + 1) * 5 + across + 2]

    scores = query @ key.transpose(-2, -1) / 2 + bias
    weights = scores.masked_fill(~neighbours(GRID, WINDOW, shift), -torch.inf).softmax(-1)
    expected = attention.output((weights @ value).transpose(1, 2).flatten(2))

    torch.testing.assert_close(attention(x), expected, atol=1e-6, rtol=1e-5)


def test_the_bias_index_is_swins():
    """A pair's line in the table is (down + M - 1)(2M - 1) + across + M - 1, from -(M - 1) to M - 1 each."""
    side = 3
    coords = [(row, column) for row in range(side) for column in range(side)]
    expected = [[(a - c + side - 1) * (2 * side - 1) + (b - d + side - 1) for c, d in coords] for a, b in coords]

    index = GridBias(side, side, num_heads=2).index

    assert expected == index.tolist()
    assert set(range((2 * side - 1) ** 2)) == set(index.flatten().tolist())


@torch.inference_mode()
def test_queries_meet_the_vector_of_their_offset():
    """GridKeys gives q_i . (R_h[down] + R_w[across]) for every pair of positions."""
    torch.manual_seed(0)
    keys, query = GridKeys(2, 3, head_dim=4), torch.randn(2, 5, 6, 4)
    down, across = grid_offsets(2, 3)

    expected = torch.einsum("bhid,ijd->bhij", query, keys.down[down] + keys.across[across])

    torch.testing.assert_close(keys(query), expected)


@torch.inference_mode()
def test_merging_concatenates_neighbours():
    """Each merged position is the projection of its four, in reading order."""
    merging, x = PatchMerging((2, 4), width=3), torch.randn(1, 8, 3)

    expected = [torch.cat([x[0, place] for place in places]) for places in ((0, 1, 4, 5), (2, 3, 6, 7))]

    torch.testing.assert_close(merging(x)[0], merging.reduction(merging.norm(torch.stack(expected))))


@torch.inference_mode()
def test_swin_rolls_out_through_windows_and_merging():
    """Swin's summary is the mean row of the product of explicit matrices: (A + I) / 2 of layers, 1/4 of mergings."""
    torch.manual_seed(0)
    model, pixels = tiny_swin().model, torch.randn(1, 3, 16, 24)
    x, flow = model.patch_norm(model.patches(pixels)), torch.eye(96)
    for block in model.blocks:
        if isinstance(block, PatchMerging):
            step = torch.zeros(len(block.positions), x.shape[1])
            step.scatter_(1, block.positions, 0.25)
        else:
            weights = block.weights(x)[0].mean(dim=1)
            matrix = as_matrix(weights, block.attention.positions, x.shape[1])
            step = (matrix + torch.eye(x.shape[1])) / 2
        flow, x = step @ flow, block(x)

    weights, mass = model.explain(DEFAULT, DEFAULT, pixels)

    torch.testing.assert_close(weights, flow.mean(dim=0, keepdim=True))
    torch.testing.assert_close(mass, torch.ones(1))


@torch.inference_mode()
def test_a_layer_of_swin_is_the_mean_over_its_queries():
    """One layer and head in the second stage is the column mean of its windows, a quarter to each patch below."""
    torch.manual_seed(0)
    model, pixels = tiny_swin().model, torch.randn(1, 3, 16, 24)
    x = model.patch_norm(model.patches(pixels))
    for block in model.blocks[:4]:
        x = block(x)
    layer, merging = model.blocks[4], model.blocks[2]
    matrix = as_matrix(layer.weights(x)[0, :, 1], layer.attention.positions, 24)
    expected = torch.zeros(96)
    expected[merging.positions] = matrix.mean(dim=0)[:, None].expand(-1, 4) / 4

    weights, _ = model.explain(torch.tensor([3]), torch.tensor([1]), pixels)

    torch.testing.assert_close(weights[0], expected)


def test_every_second_layer_of_swin_is_shifted():
    """Windows shift by half in odd layers; where the grid is no longer than a window, they are the grid's and stay."""
    sides = {"channels": 1, "image_height": 16, "image_width": 16, "patch_size": 2}
    sizes = {"d_model": 8, "depths": (3, 2, 2), "num_heads": (2, 2, 2), "window_size": 4}
    config = SwinConfig(num_labels=10, **sides, **sizes)

    assert [0, 2, 0] == [config.shift_of(0, layer) for layer in range(3)]
    assert [0, 0] == [config.shift_of(1, layer) for layer in range(2)]
    assert [4, 4, 2] == [config.window_of(stage) for stage in range(3)]


@torch.inference_mode()
def test_deit_adds_the_probabilities_of_two_heads():
    """DeiT answers with the mean of both heads' softmax; training sees the logits of each head on its own token."""
    torch.manual_seed(0)
    model, pixels = tiny_deit().model, torch.randn(3, 1, 8, 8)
    classified, distilled = model.head_logits(pixels)

    expected = (classified.softmax(-1) + distilled.softmax(-1)) / 2

    torch.testing.assert_close(model(pixels).softmax(-1), expected)
    assert not torch.allclose(classified, distilled)


@torch.inference_mode()
def test_deit_explains_with_the_class_token():
    """The map is the class token's row of the rollout over all tokens, without the two tokens' own columns."""
    torch.manual_seed(0)
    model, pixels = tiny_deit().model, torch.randn(1, 1, 8, 8)
    attentions = model.encoder.attentions(model._embed(pixels))
    row = rollout([weights[0].mean(dim=0) for weights in attentions])[0, 2:]

    weights, mass = model.explain(DEFAULT, DEFAULT, pixels)

    torch.testing.assert_close(weights[0], row / row.sum())
    torch.testing.assert_close(mass[0], row.sum())
    assert (1, 16) == weights.shape


def folded(model):
    """A copy whose norms are folded into the weights and biases of the convolutions before them."""
    model = copy.deepcopy(model)
    for block in model.modules():
        if hasattr(block, "convolution"):
            block.convolution = nn.utils.fuse_conv_bn_eval(block.convolution, block.norm)
            block.norm = nn.Identity()
    return model


@torch.inference_mode()
def test_norms_are_affine_once_trained():
    """In evaluation the residual network equals the one whose norms became part of its convolutions."""
    torch.manual_seed(0)
    model, pixels = tiny_resnet().model, torch.randn(3, 3, 16, 24)
    assert (model.stem.norm.running_var - 1).abs().max() > 0.1

    torch.testing.assert_close(folded(model)(pixels), model(pixels), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_an_attention_block_is_a_bottleneck_with_attention_in_its_middle():
    """The block's output is ReLU(x + expand(ReLU(norm(weights of all positions times values))))."""
    torch.manual_seed(0)
    block = AttentionBlock(channels=8, width=4, rows=2, columns=3, num_heads=2).eval()
    x = torch.randn(1, 8, 2, 3)
    reduced = block.reduce(x).relu().flatten(2).transpose(1, 2)
    values = block.attention.qkv(reduced)[..., 8:].view(1, 6, 2, 2)
    mixed = torch.einsum("bhij,bjhd->bihd", block.weights(x), values).flatten(2)

    expected = (block.expand(block.norm(mixed.transpose(1, 2)).relu().view(1, 4, 2, 3)) + x).relu()

    torch.testing.assert_close(block(x), expected)
    assert (1, 2, 6, 6) == block.weights(x).shape


@torch.inference_mode()
def test_pictures_of_a_batch_do_not_mix():
    """In torch too, a picture's logits do not depend on the others; norms use what training left them."""
    torch.manual_seed(0)
    pixels = torch.randn(4, 3, 16, 24)
    for checkpoint in (tiny_swin(), tiny_resnet()):
        changed = pixels.clone()
        changed[1:] = 9.0

        torch.testing.assert_close(checkpoint.model(changed)[0], checkpoint.model(pixels)[0])


@pytest.mark.parametrize(
    ("make", "change", "complaint"),
    [
        (tiny_swin, {"depths": (2,)}, "one entry for each stage"),
        (tiny_swin, {"depths": (2, 0)}, r"depths\[1\] must be"),
        (tiny_swin, {"num_heads": (2, 5)}, r"multiple of num_heads\[1\]"),
        (tiny_swin, {"image_width": 28}, "must be a multiple of"),
        (tiny_swin, {"window_size": 3}, "must be a multiple of its window"),
        (tiny_swin, {"image_width": 28, "window_size": 1, **THREE_STAGES}, r"multiple of 2 \*\* stage"),
        (tiny_swin, {"image_width": 4, **THREE_STAGES}, r"multiple of 2 \*\* stage"),
        (tiny_resnet, {"widths": ()}, "must have between 1 and 12 numbers"),
        (tiny_resnet, {"widths": (8, 12)}, r"multiple of reduction \* num_heads"),
        (tiny_resnet, {"image_height": 18}, r"multiple of 2 \*\* len"),
        (tiny_deit, {"distillation": 1}, "must be true or false"),
    ],
)
def test_sizes_that_cannot_work_are_refused(make, change, complaint):
    """A config that no model can be made of raises ValueError with the size's name."""
    config = make().model.config
    with pytest.raises(ValueError, match=complaint):
        type(config)(**{**vars(config), **change})
