"""The families in torch: the cached path, masks, and what their sizes must be."""

import dataclasses

import pytest
import torch
from tiny import CHECKPOINTS, SOURCE_WORDS, tiny_caption, tiny_generate, tiny_text, tiny_translate

from weft_export.families.causal_lm import CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoderConfig
from weft_export.families.registry import FAMILIES
from weft_export.views import candidates

BATCH = 3


def lengths_of(*values):
    """Make an int32 tensor of lengths."""
    return torch.tensor(values, dtype=torch.int32)


def empty_caches(shape, num_layers, batch=BATCH):
    """Make caches full of rubbish: nothing beyond the valid length may be read."""
    return [(torch.full((batch, *shape), 1e3), torch.full((batch, *shape), -1e3)) for _ in range(num_layers)]


def a_source(name):
    """Make a random ragged batch for a sequence-to-sequence model, and the lengths of its memory."""
    if name == "tiny-caption":
        return (torch.randn(BATCH, 3, 16, 24),), lengths_of(24, 24, 24)
    ids, lengths = torch.randint(4, len(SOURCE_WORDS), (BATCH, 11)), lengths_of(4, 11, 1)
    return (ids, lengths), lengths


@torch.inference_mode()
@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption"])
def test_cached_sequence_to_sequence_equals_full_recomputation(name):
    """Decoding through the caches gives, to the last position there is, the greedy tokens of a full recomputation."""
    torch.manual_seed(0)
    model = CHECKPOINTS[name]().model
    source, memory_lengths = a_source(name)
    capacity = model.decoder.cache_shape[1]
    caches, memories = empty_caches(model.decoder.cache_shape, 2), model.project(*source)
    tokens = torch.full((BATCH, 1), 2)

    for position in range(capacity):
        past, one = lengths_of(*[position] * BATCH), lengths_of(*[1] * BATCH)
        logits, caches, memories = model.decoder.step(
            tokens[:, -1:], past, one, lengths_of(capacity), caches, memories, memory_lengths
        )
        full = model.decode(tokens, *source)[:, -1]

        torch.testing.assert_close(logits, full, atol=1e-4, rtol=1e-4)
        assert logits.argmax(-1).tolist() == full.argmax(-1).tolist()
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    assert tokens.shape[1] == capacity + 1


@torch.inference_mode()
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_cached_generation_equals_full_recomputation(num_kv_heads):
    """Ragged prefill and then decoding to the model's last position gives the tokens of a full recomputation."""
    torch.manual_seed(0)
    config = dataclasses.replace(tiny_generate().model.config, num_kv_heads=num_kv_heads)
    model = FAMILIES["causal_lm"].model(config).eval()
    capacity = config.max_tokens
    rows = [torch.randint(300, (length,)).tolist() for length in (5, 9, 16)]
    caches = empty_caches(model.cache_shape, config.num_layers)
    padded = torch.tensor([row + [7] * (16 - len(row)) for row in rows])

    logits, caches = model.step(padded, lengths_of(0, 0, 0), lengths_of(5, 9, 16), lengths_of(capacity), caches)
    while len(rows[2]) < capacity:
        for row, row_logits in zip(rows, logits, strict=True):
            full = model(torch.tensor([row]))[0, -1]
            torch.testing.assert_close(row_logits, full, atol=1e-4, rtol=1e-4)
            assert int(row_logits.argmax()) == int(full.argmax())
            row.append(int(full.argmax()))
        past = lengths_of(*[len(row) - 1 for row in rows])
        last = torch.tensor([row[-1:] for row in rows])
        logits, caches = model.step(last, past, lengths_of(1, 1, 1), lengths_of(capacity), caches)


@torch.inference_mode()
def test_prefill_in_chunks_equals_prefill_at_once():
    """A prompt run in padded chunks leaves the logits and the valid cache of the prompt run at once."""
    model = tiny_generate().model
    prompt = torch.randint(300, (1, 13))
    capacity = lengths_of(64)

    whole, expected = model.step(prompt, lengths_of(0), lengths_of(13), capacity, empty_caches(model.cache_shape, 2, 1))
    _, caches = model.step(prompt[:, :8], lengths_of(0), lengths_of(8), capacity, empty_caches(model.cache_shape, 2, 1))
    rest = torch.cat((prompt[:, 8:], torch.zeros(1, 3, dtype=torch.int64)), dim=1)
    chunked, caches = model.step(rest, lengths_of(8), lengths_of(5), capacity, caches)

    torch.testing.assert_close(chunked, whole, atol=1e-4, rtol=1e-4)
    for (key, value), (expected_key, expected_value) in zip(caches, expected, strict=True):
        torch.testing.assert_close(key[:, :, :13], expected_key[:, :, :13], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(value[:, :, :13], expected_value[:, :, :13], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_padding_of_a_source_changes_nothing():
    """What stands behind a source's or a text's end has no influence."""
    ids, target, length = torch.randint(4, 20, (1, 16)), torch.randint(4, 20, (1, 5)), torch.tensor([6])
    translator, classifier = tiny_translate().model, tiny_text().model

    torch.testing.assert_close(
        translator(ids, length, target), translator(ids[:, :6], length, target), atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(classifier(ids, length), classifier(ids[:, :6], length), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_no_position_sees_the_future():
    """A target token changes no logits before its own position."""
    pixels, target = torch.randn(1, 3, 16, 24), torch.randint(4, 20, (1, 8))
    model = tiny_caption().model
    changed = target.clone()
    changed[0, 5] = 3

    torch.testing.assert_close(model(pixels, changed)[:, :5], model(pixels, target)[:, :5])
    assert not torch.equal(model(pixels, changed)[:, 5:], model(pixels, target)[:, 5:])


@torch.inference_mode()
@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption"])
@pytest.mark.parametrize("layer", [0, 1])
def test_alignment_is_a_distribution_over_the_real_source(name, layer):
    """Each row of alignment weights sums to 1 and gives padding nothing."""
    model = CHECKPOINTS[name]().model
    source, memory_lengths = a_source(name)

    weights = model.alignment(layer, torch.randint(4, 20, (BATCH, 7)), *source)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, 7))
    for row, length in zip(weights, memory_lengths.tolist(), strict=True):
        assert row[:, length:].abs().sum() == 0


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_have_the_shape_of_the_task(name):
    """A family's forward gives logits for the vocabulary at every position, or for the labels."""
    checkpoint = CHECKPOINTS[name]()
    if name == "tiny-generate":
        assert checkpoint.model(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 300)
    elif checkpoint.labels:
        source = torch.zeros(2, 1, 8, 8) if checkpoint.image else torch.zeros(2, 5, dtype=torch.int64)
        lengths = () if checkpoint.image else (torch.tensor([5, 2]),)
        assert checkpoint.model(source, *lengths).shape == (2, len(checkpoint.labels))
    else:
        source, _ = a_source(name)
        target = torch.zeros(BATCH, 5, dtype=torch.int64)
        assert checkpoint.model(*source, target).shape == (BATCH, 5, checkpoint.text.target_vocab_size)


@pytest.mark.parametrize(
    ("config", "change", "complaint"),
    [
        (tiny_translate().model.config, {"d_model": 40}, "multiple of 8 \\* num_heads"),
        (tiny_translate().model.config, {"d_ff": 0}, "d_ff must be"),
        (tiny_translate().model.config, {"dropout": 1.0}, "dropout must be"),
        (tiny_caption().model.config, {"image_width": 30}, "multiple of patch_size"),
        (tiny_generate().model.config, {"d_model": 96}, "multiple of 16 \\* num_heads"),
        (tiny_generate().model.config, {"num_kv_heads": 3}, "multiple of num_kv_heads"),
        (tiny_generate().model.config, {"rope_theta": 0.5}, "rope_theta must be"),
    ],
)
def test_sizes_that_cannot_work_are_refused(config, change, complaint):
    """A config that no graph can be made of raises ValueError with the size's name."""
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(config, **change)


def test_configs_are_frozen():
    """Sizes never change after a model is built."""
    for config in (EncoderDecoderConfig, CausalLmConfig):
        assert config.__dataclass_params__.frozen


@torch.inference_mode()
def test_candidates_are_the_best_logits():
    """Candidates are the best logits in descending order, with their ids and the exact normaliser."""
    logits = torch.randn(5, 50) * 20
    best, ids, logsumexp, same = candidates(logits, 8)

    assert torch.equal(same, logits)
    assert torch.equal(best, logits.sort(dim=-1, descending=True).values[:, :8])
    assert torch.equal(best, logits.gather(1, ids))
    torch.testing.assert_close(logsumexp, logits.logsumexp(dim=-1))
