"""Rounded keys and values: the nearest level, scales that hold what a model does, and decoding as before."""

import pytest
import torch
from samples import sample
from test_families import a_source, assert_generation_equals_recomputation, lengths_of
from tiny import CHECKPOINTS, INT8, tiny_gpt
from tiny_gpt import tiny_window

from weft_export.checkpoints.held_out import Example
from weft_export.errors import CheckpointError
from weft_export.families.writer import RECURRENT
from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.run import Run
from weft_export.quantization import calibration, requests
from weft_export.quantization.calibration import MARGIN, cache_ranges
from weft_export.quantization.integer_products import quantised

HEADS, HEAD_DIM = 2, 8
CACHED = [name for name in INT8 if getattr(sample(name).model, "cached_attentions", ())]


def a_rounding():
    """Ranges from 1 to 16, different for each channel of keys and of values."""
    keys = torch.linspace(1, 16, HEADS * HEAD_DIM).view(HEADS, HEAD_DIM)
    return CacheRounding(keys, keys.flip(1)), keys


def test_rounding_is_to_the_nearest_level_of_the_channel():
    """What lies within its channel's range is off by at most half a level of that channel."""
    rounding, ranges = a_rounding()
    keys, values = (torch.rand(3, HEADS, 5, HEAD_DIM) * 2 - 1 for _ in range(2))
    keys, values = keys * ranges[:, None], values * ranges.flip(1)[:, None]
    key_levels, value_levels = rounding.levels(keys, values)

    assert {torch.int8} == {key_levels.dtype, value_levels.dtype}
    rounded_keys, rounded_values = rounding(keys, values)
    half = ranges[:, None] / 127 / 2 * (1 + 1e-5)
    assert bool(((rounded_keys - keys).abs() <= half).all())
    assert bool(((rounded_values - values).abs() <= half.flip(2)).all())


def test_what_exceeds_the_range_is_clipped():
    """A channel beyond its range gets the outermost level, and the others stay."""
    rounding, ranges = a_rounding()
    keys = torch.zeros(1, HEADS, 1, HEAD_DIM)
    keys[0, 0, 0, 3], keys[0, 1, 0, 0] = 1e6, -1e6
    levels, _ = rounding.levels(keys, keys)

    assert [127, -128] == [int(levels[0, 0, 0, 3]), int(levels[0, 1, 0, 0])]
    assert 2 == int(levels.count_nonzero())
    assert pytest.approx(float(ranges[0, 3])) == float(rounding(keys, keys)[0][0, 0, 0, 3])


def test_a_channel_that_was_always_zero_has_a_scale():
    """A dead channel rounds like one of a 128th of the largest, and a state that was all zero like one of 127."""
    rounding = CacheRounding(torch.tensor([[0.0, 127.0]]), torch.zeros(1, 2))

    assert [1 / 128, 1.0] == rounding.key_scale.flatten().tolist()
    assert [1 / 127, 1 / 127] == pytest.approx(rounding.value_scale.flatten().tolist())


@pytest.mark.parametrize("name", CACHED)
def test_ranges_hold_what_was_seen(name):
    """Without margin, the requests that were calibrated with reach the outermost level, and nothing beyond."""
    checkpoint = CHECKPOINTS[name]()
    ranges = [largest / MARGIN for largest in cache_ranges(checkpoint, ())]
    with torch.inference_mode():
        for source, tokens in requests.random_targets(checkpoint):
            states = calibration._states_after(checkpoint.model, source, tokens)
            kept = [at for at, state in enumerate(checkpoint.model.states) if state.kind != RECURRENT]
            for largest, values in zip(ranges, (states[at] for at in kept), strict=True):
                assert bool((values[0].abs().amax(dim=1) <= largest * (1 + 1e-6)).all())
    assert all(bool((largest > 0).all()) for largest in ranges)


def test_held_out_examples_widen_the_ranges(monkeypatch):
    """A held-out example with a token that no random request had, and that goes further, is taken into account."""
    monkeypatch.setattr(requests, "NUM_RANDOM", 2)
    monkeypatch.setattr(requests, "OWN_TEXTS", ())
    checkpoint = CHECKPOINTS["tiny-generate"]()
    seen = {token for _, tokens in requests.random_targets(checkpoint) for token in tokens}
    rare = next(token for token in range(checkpoint.text.source_vocab_size) if token not in seen)
    with torch.no_grad():
        checkpoint.model.embedding.weight[rare] = 0.0
        checkpoint.model.embedding.weight[rare, 3] = 50.0
    narrow = cache_ranges(checkpoint, ())
    wide = cache_ranges(checkpoint, [Example(torch.tensor([rare, rare]), "a")])

    assert all(bool((more >= less).all()) for more, less in zip(wide, narrow, strict=True))
    assert any(bool((more > less).any()) for more, less in zip(wide, narrow, strict=True))


def test_a_model_that_overflows_is_refused():
    """Keys that are not finite have no scale, and the message names the state."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    with torch.no_grad():
        checkpoint.model.layers[1].attention.qkv.weight.fill_(3e38)
    with pytest.raises(CheckpointError, match=r"state 1\.key is not finite"):
        quantised(checkpoint)


@torch.inference_mode()
@pytest.mark.parametrize("make", [CHECKPOINTS["tiny-generate"], tiny_gpt, tiny_window], ids=["rotary", "gpt", "window"])
def test_cached_generation_equals_full_recomputation(make):
    """With rounded caches, prefill and decoding give the tokens of a full recomputation that rounds the same."""
    checkpoint = rounded_caches_only(make())
    text = checkpoint.text
    assert_generation_equals_recomputation(checkpoint.model, text.max_total_tokens, text.source_vocab_size)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption", "tiny-t5"])
def test_cached_decoding_equals_full_recomputation(name):
    """With rounded caches and memories, each step gives the logits of a full recomputation that rounds the same."""
    checkpoint = rounded_caches_only(CHECKPOINTS[name]())
    model, capacity = checkpoint.model, checkpoint.text.max_total_tokens
    source, memory_lengths = a_source(checkpoint)
    states = []
    encoded = iter(model.encode_states(*source))
    for state in model.states:
        assert state.rounded
        values = torch.full((3, *state.shape), 99, dtype=torch.int8)
        if state.encoded:
            written = next(encoded)
            assert torch.int8 == written.dtype
            values[:, :, : written.shape[2]] = written
        states.append(values)
    tokens = torch.full((3, 1), checkpoint.text.start_id)
    for position in range(capacity):
        past, one = lengths_of(*[position] * 3), lengths_of(1, 1, 1)
        logits, states = model.step(Run(tokens[:, -1:], past, one, lengths_of(capacity), memory_lengths), states)
        torch.testing.assert_close(logits, model.decode(tokens, *source)[:, -1], atol=1e-9, rtol=1e-9)
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)


def rounded_caches_only(checkpoint):
    """Round a checkpoint's keys and values, and make its products in float64: then nothing falls to another level."""
    rounded = quantised(checkpoint).model
    for attention, other in zip(checkpoint.model.cached_attentions, rounded.cached_attentions, strict=True):
        attention.rounding = other.rounding
    checkpoint.model.states = rounded.states
    checkpoint.model.double()
    return checkpoint
