"""Causal families: GPT against torch's own layers, and sliding windows."""

import dataclasses

import pytest
import torch
from tiny_gpt import MAX_TOKENS, WINDOW, tiny_gpt, tiny_window
from tiny_parts import randomised
from torch import nn
from torch_layers import torch_layer

from weft_export.families.causal_lm import CausalLm
from weft_export.families.gpt import Gpt, GptConfig
from weft_export.layers.positions import sinusoidal_table

AVERAGE = torch.tensor([-1])


def one_layer(window):
    """Make a model of one layer, so that what a token attends to is all that it depends on."""
    config = dataclasses.replace(tiny_window().model.config, num_layers=1, sliding_window=window)
    return randomised(CausalLm(config))


@torch.no_grad()
def test_gpt_is_torchs_own_layers():
    """Embedding, positions, pre-norm layers with GELU by tanh, norm and tied projection give GPT's logits."""
    model = tiny_gpt().model
    ids = torch.randint(300, (2, MAX_TOKENS))
    x = model.embedding.tokens.weight[ids] + model.embedding.positions.weight
    hidden = nn.Transformer.generate_square_subsequent_mask(MAX_TOKENS)
    for layer in model.layers:
        x = torch_layer(layer, model.config, pre_norm=True)(x, hidden)
    expected = model.norm(x) @ model.embedding.tokens.weight.T

    torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("head", [-1, 0, 1])
def test_explanation_is_the_layers_attention_to_the_prompt(head):
    """Row r is what position prompt - 1 + r gives the prompt in torch's own attention, made to sum to 1."""
    model = tiny_gpt().model
    prompt, target = torch.randint(300, (1, 7)), torch.randint(300, (1, 4))
    ids = torch.cat((prompt, target), dim=1)
    x, hidden = model.embed(ids), nn.Transformer.generate_square_subsequent_mask(11)
    first, second = (torch_layer(layer, model.config, pre_norm=True) for layer in model.layers)
    x = second.norm1(first(x, hidden))
    _, every_head = second.self_attn(x, x, x, attn_mask=hidden, average_attn_weights=False)
    expected = (every_head[0].mean(dim=0) if head < 0 else every_head[0, head])[6:, :7]

    weights, mass = model.explain(torch.tensor([1]), torch.tensor([head]), target, prompt, torch.tensor([7]))

    torch.testing.assert_close(mass, expected.sum(dim=-1))
    torch.testing.assert_close(weights, expected / expected.sum(dim=-1, keepdim=True), atol=1e-5, rtol=1e-4)


def test_gpts_residual_projections_begin_smaller():
    """At the paper's width, weights onto the residual path are drawn with 0.02 / sqrt(2 N), the others with 0.02."""
    model = Gpt(GptConfig(vocab_size=50, max_tokens=8, d_model=768, num_heads=2, d_ff=64, num_layers=8))
    for layer in model.layers:
        for onto_residual in (layer.attention.output, layer.feed_forward.down_proj):
            assert pytest.approx(0.005, rel=0.1) == onto_residual.weight.std().item()
        for inner in (layer.attention.qkv, layer.feed_forward.up_proj):
            assert pytest.approx(0.02, rel=0.1) == inner.weight.std().item()
            assert not inner.bias.any()


@torch.inference_mode()
def test_rows_begin_at_positions_of_their_own():
    """A row whose past has n tokens embeds its next ones as tokens n, n + 1, ... of a whole sequence."""
    embedding = tiny_gpt().model.embedding
    embedding.positions.weight.copy_(sinusoidal_table(MAX_TOKENS, 48))
    ids = torch.randint(300, (2, 20))

    later = embedding(torch.stack((ids[0, 5:8], ids[1, 12:15])), torch.tensor([5, 12], dtype=torch.int32))

    assert torch.equal(later, torch.stack((embedding(ids)[0, 5:8], embedding(ids)[1, 12:15])))


@torch.inference_mode()
@pytest.mark.parametrize("window", [1, 2, WINDOW])
def test_a_window_ends_where_it_says(window):
    """One layer sees the last `window` tokens, its own included: a change in those changes it, one before does not."""
    model, ids = one_layer(window), torch.randint(4, 300, (1, 20))
    for distance in range(12):
        changed = ids.clone()
        changed[0, 19 - distance] = (changed[0, 19 - distance] + 1) % 300

        assert (distance >= window) == torch.equal(model(changed)[0, 19], model(ids)[0, 19])


@torch.inference_mode()
def test_a_window_as_wide_as_the_context_is_none():
    """With a window of max_tokens, logits are those of a model without one."""
    ids = torch.randint(300, (2, MAX_TOKENS))
    torch.testing.assert_close(one_layer(MAX_TOKENS)(ids), one_layer(None)(ids))


@torch.inference_mode()
def test_a_row_that_has_lost_sight_of_the_prompt_is_uniform():
    """Where the window no longer reaches the prompt, source_mass is 0 and the row is uniform; before, it is not."""
    model = tiny_window().model
    prompt, target = torch.randint(300, (1, 4)), torch.randint(300, (1, 10))

    weights, mass = model.explain(torch.tensor([0]), AVERAGE, target, prompt, torch.tensor([4]))

    assert [*range(WINDOW)] == mass.nonzero().flatten().tolist()
    assert torch.equal(weights[WINDOW:], torch.full((11 - WINDOW, 4), 0.25))
    assert [0, 0, 0, 1] == weights[WINDOW - 1].tolist()


@pytest.mark.parametrize(
    ("config", "change", "complaint"),
    [
        (tiny_gpt().model.config, {"d_model": 40}, "that must be a multiple of 8"),
        (tiny_gpt().model.config, {"max_tokens": 0}, "max_tokens must be"),
        (tiny_gpt().model.config, {"norm_eps": 0.0}, "norm_eps must be"),
        (tiny_window().model.config, {"sliding_window": 0}, "sliding_window must be"),
    ],
)
def test_sizes_that_cannot_work_are_refused(config, change, complaint):
    """A config that no graph can be made of raises ValueError with the size's name."""
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(config, **change)
