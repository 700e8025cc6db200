"""Whisper's decoder: over any memory, our logits and tokens are theirs."""

import json

import pytest
import torch
import transformers
from foreign import END, LOGITS, PAD, VOCAB, furthest, made_model, token_rows

from weft_export.converters.convert import converter_of
from weft_export.converters.converter import Foreign
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.whisper import read_decoder
from weft_export.errors import CheckpointError
from weft_export.layers.run import Run

HEADS, HEAD_DIM, LAYERS, CAPACITY = 2, 16, 2, 24


def whisper(directory):
    """Write a random Whisper; return it and our decoder."""
    config = transformers.WhisperConfig(
        vocab_size=VOCAB,
        d_model=HEADS * HEAD_DIM,
        encoder_layers=1,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=24,
        decoder_layers=LAYERS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=40,
        num_mel_bins=8,
        max_source_positions=12,
        max_target_positions=CAPACITY,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    theirs = made_model(transformers.WhisperForConditionalGeneration, config, directory)
    fields = Fields(json.loads((directory / "config.json").read_text()))
    return theirs, read_decoder(directory, Foreign(directory, fields, Generation(), frozenset()))


def test_whisper_s_decoder_says_what_transformers_says(tmp_path):
    """Logits within 1e-4: of a whole target, and step by step over the cache."""
    theirs, ours = whisper(tmp_path)
    memory = torch.randn(1, 12, HEADS * HEAD_DIM)
    target = torch.tensor(token_rows(VOCAB, (CAPACITY,)))
    caches = [(torch.zeros(1, HEADS, CAPACITY, HEAD_DIM),) * 2 for _ in range(LAYERS)]
    with torch.inference_mode():
        hidden = theirs.model.decoder(input_ids=target, encoder_hidden_states=memory).last_hidden_state
        expected = theirs.proj_out(hidden)[0]
        whole = ours(target, ours.project(memory), torch.ones(1, 1, 1, 12, dtype=torch.bool))[0]
        remembered = ours.remember(memory)
        steps = []
        for place in range(CAPACITY):
            one, total = torch.ones(1, dtype=torch.int32), torch.tensor([CAPACITY], dtype=torch.int32)
            run = Run(target[:, place : place + 1], one * place, one, total, one * 12)
            logits, caches, _ = ours.step(run, caches, remembered)
            steps.append(logits[0])

    assert LOGITS >= furthest(whole, expected)
    assert LOGITS >= furthest(torch.stack(steps), expected)


def test_a_whisper_is_refused_by_name():
    """Speech is not served yet."""
    with pytest.raises(CheckpointError, match="'whisper' is not supported"):
        converter_of({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]})
