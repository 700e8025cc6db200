"""wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021) with a CTC head: speech to text with times."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.ctc_files import WINDOW_S, sample_rate_of
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, Source, both, both_rows, computed, layer_names
from weft_export.errors import CheckpointError
from weft_export.families.ctc import GROUP, LAYER, CtcConfig
from weft_export.layers.style import Style
from weft_proto.bundle_rules import LIMITS

_MOST_FRAMES = int(LIMITS["AudioSpec"]["num_frames"].maximum or 0)
# They are of other heads, of training, or of an adapter that is not there.
_SKIPPED = """
adapter_kernel_size adapter_stride apply_spec_augment classifier_proj_size codevector_dim contrastive_logits_temperature
ctc_loss_reduction ctc_zero_infinity diversity_loss_weight mask_channel_length mask_channel_min_space
mask_channel_other mask_channel_prob mask_channel_selection mask_feature_length mask_feature_min_masks
mask_feature_prob mask_time_length mask_time_min_masks mask_time_min_space mask_time_other mask_time_prob
mask_time_selection num_adapter_layers num_codevector_groups num_codevectors_per_group num_negatives
output_hidden_size proj_codevector_dim tdnn_dilation tdnn_dim tdnn_kernel tie_word_embeddings
use_weighted_layer_sum xvector_output_dim
"""


def sizes(hf: HfCheckpoint, *, may_norm: bool) -> CtcConfig:
    """Read what both have; may_norm: feat_proj_layer_norm says whether there is a norm before the projection."""
    fields = hf.fields
    fields.skip(*_SKIPPED.split())
    fields.only("add_adapter", False)
    fields.only("adapter_attn_dim", None)
    fields.only("conv_pos_batch_norm", False)
    widths = tuple(fields.list("conv_dim", [512] * 7))
    kernels = tuple(fields.list("conv_kernel", [10, 3, 3, 3, 3, 2, 2]))
    strides = tuple(fields.list("conv_stride", [5, 2, 2, 2, 2, 2, 2]))
    fields.only("num_feat_extract_layers", len(widths), None)
    is_stable = fields.flag("do_stable_layer_norm", default=False)
    config = CtcConfig(
        num_labels=fields.whole("vocab_size", 32),
        num_frames=1,
        convolution_widths=widths,
        convolution_kernels=kernels,
        convolution_strides=strides,
        convolution_norm=fields.among("feat_extract_norm", {GROUP: GROUP, LAYER: LAYER}, GROUP),
        convolution_bias=fields.flag("conv_bias", default=False),
        convolution_activation=fields.among("feat_extract_activation", ACTIVATIONS, "gelu"),
        projection_norm=fields.flag("feat_proj_layer_norm", default=True) if may_norm else True,
        d_model=fields.whole("hidden_size", 768),
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=fields.whole("num_hidden_layers", 12),
        position_kernel=fields.whole("num_conv_pos_embeddings", 128),
        position_groups=fields.whole("num_conv_pos_embedding_groups", 16),
        style=Style(
            residual="pre" if is_stable else "post",
            norm_eps=fields.positive("layer_norm_eps", 1e-5),
            activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
        ),
    )
    num_frames = min(_MOST_FRAMES, WINDOW_S * sample_rate_of(hf) // config.hop_size)
    return replace(config, num_frames=max(1, num_frames))


def names(config: CtcConfig, *, body: str) -> Names:
    """Return where each weight comes from; body: what the names of all but the last layer begin with."""
    heard, encoder = f"{body}.feature_extractor.conv_layers", f"{body}.encoder"
    parts = ("weight", "bias") if config.convolution_bias else ("weight",)
    count = len(config.convolution_widths)
    normed = range(count if config.convolution_norm == LAYER else 1)
    table: dict[str, Source | str] = {}
    for index in range(count):
        table |= both(f"convolutions.{index}.convolution", f"{heard}.{index}.conv", *parts)
    for index in normed:
        table |= both(f"convolutions.{index}.norm", f"{heard}.{index}.layer_norm")
    place = f"{encoder}.pos_conv_embed.conv"
    stored = ("parametrizations.weight.original0", "parametrizations.weight.original1", "weight_g", "weight_v")
    kernels = tuple(f"{place}.{name}" for name in stored)
    norm = "norm" if config.style.residual == "post" else "encoder.norm"
    projection = f"{body}.feature_projection"
    return {
        **table,
        **(both("projection_norm", f"{projection}.layer_norm") if config.projection_norm else {}),
        **both("projection", f"{projection}.projection"),
        "positions.convolution.weight": computed(_kernel, *kernels, optional=kernels),
        "positions.convolution.bias": f"{place}.bias",
        **both(norm, f"{encoder}.layer_norm"),
        **layer_names(_LAYER, "encoder.layers.{}.", f"{encoder}.layers.{{}}."),
        **both("labels", "lm_head"),
    }


def _kernel(*stored: Tensor | None) -> Tensor:
    """Return a kernel of its length for each place, and of its direction; newer files have other names for both."""
    for length, direction in (stored[:2], stored[2:]):
        if length is not None and direction is not None:
            whole: Tensor = length * direction / torch.linalg.vector_norm(direction, dim=(0, 1), keepdim=True)
            return whole
    raise CheckpointError("pos_conv_embed.conv has neither weight_g and weight_v nor parametrizations.weight")


_LAYER: Names = {
    **both_rows("attention.qkv", "attention.{q,k,v}_proj"),
    **both("attention.output", "attention.out_proj"),
    **both("attention_norm", "layer_norm"),
    **both("feed_forward.up_proj", "feed_forward.intermediate_dense"),
    **both("feed_forward.down_proj", "feed_forward.output_dense"),
    **both("feed_forward_norm", "final_layer_norm"),
}
CONVERTERS = tuple(
    Converter(
        model_type=model_type,
        architectures=(architecture,),
        family="ctc",
        sizes=partial(sizes, may_norm=model_type == "hubert"),
        names=partial(names, body=model_type),
        # What stands in the place of moments that training hides.
        ignored=(rf"{model_type}\.masked_spec_embed",),
        follows_settings=False,
    )
    for model_type, architecture in (("wav2vec2", "Wav2Vec2ForCTC"), ("hubert", "HubertForCTC"))
)
