"""A tiny random generator whose layer is a mixture of experts."""

from dataclasses import replace

from tiny_decoder import tiny_decoder
from tiny_parts import randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.decoder_only import DecoderOnly


def tiny_mixture(experts: int, chosen: int = 1) -> Checkpoint:
    """Return the tiny decoder with one layer, of experts."""
    checkpoint = tiny_decoder()
    assert isinstance(checkpoint.model, DecoderOnly)
    config = checkpoint.model.config
    style = replace(config.style, num_experts=experts, num_chosen_experts=chosen)
    config = replace(config, num_layers=1, style=style, windows=(), rotation_of=(), d_ff=40)
    return replace(checkpoint, model=randomised(DecoderOnly(config)), attention_layer=0)
