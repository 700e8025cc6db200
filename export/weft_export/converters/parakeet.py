"""Parakeet (NVIDIA 2024) with a CTC head, as transformers has it: a Fast Conformer (Rekesh et al. 2023)."""

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.ctc_files import WINDOW_S
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.piece_files import read_mel
from weft_export.converters.sources import Names, Source, both, computed, layer_names, rows
from weft_export.errors import CheckpointError
from weft_export.families.conformer_ctc import ConformerCtcConfig
from weft_export.layers.style import Style

_BATCH_NORM_EPS = 1e-5


def sizes(hf: HfCheckpoint) -> ConformerCtcConfig:
    """The encoder is an object of its own in config.json."""
    # The loss's. The blank is read beside the tokenizer.
    hf.fields.skip("ctc_loss_reduction", "ctc_zero_infinity")
    fields = hf.fields.part("encoder_config")
    # No table of the model has so many rows.
    fields.skip("max_position_embeddings")
    for name, only in (("subsampling_conv_kernel_size", 3), ("subsampling_conv_stride", 2), ("attn_config", None)):
        fields.only(name, only)
    d_model, num_heads = fields.whole("hidden_size", 1024), fields.whole("num_attention_heads", 8)
    fields.only("num_key_value_heads", num_heads)
    factor = fields.whole("subsampling_factor", 8)
    sample_rate, mel = read_mel(hf)
    num_mels = fields.whole("num_mel_bins", 80)
    if mel.num_mels != num_mels:
        raise fields.wrong("num_mel_bins", f"is {num_mels}, and feature_size of the extractor is {mel.num_mels}")
    if factor < 2 or factor & (factor - 1):
        raise fields.wrong("subsampling_factor", "must be 2, 4, 8 or so")
    has_bias = fields.flag("attention_bias", default=True)
    return ConformerCtcConfig(
        num_labels=hf.fields.whole("vocab_size", 1025),
        num_frames=max(1, WINDOW_S * sample_rate // (mel.hop_size * factor)),
        num_mels=num_mels,
        frame_size=mel.hop_size,
        num_halvings=factor.bit_length() - 1,
        convolution_width=fields.whole("subsampling_conv_channels", 256),
        d_model=d_model,
        num_heads=num_heads,
        d_ff=fields.whole("intermediate_size", 4096),
        num_layers=fields.whole("num_hidden_layers", 24),
        convolution_kernel=fields.whole("conv_kernel_size", 9),
        convolution_bias=fields.flag("convolution_bias", default=True),
        scale_input=fields.flag("scale_input", default=True),
        style=Style(
            activation=fields.among("hidden_act", ACTIVATIONS, "silu"),
            bias=has_bias,
            # One of the two biases that queries meet keys and offsets with.
            qkv_bias=True,
            norm_eps=1e-5,
        ),
    )


def names(config: ConformerCtcConfig) -> Names:
    """Return where each weight comes from."""
    heard = "encoder.subsampling"
    table: dict[str, Source | str] = both("convolutions.0.convolution", f"{heard}.layers.0")
    for index in range(1, config.num_halvings):
        table |= both(f"convolutions.{index}.convolution", f"{heard}.layers.{3 * index - 1}")
        table |= both(f"convolutions.{index}.mixing", f"{heard}.layers.{3 * index}")
    return {
        **table,
        **both("projection", f"{heard}.linear"),
        **layer_names(_layer(config), "layers.{}.", "encoder.layers.{}."),
        "labels.weight": computed(_matrix, "ctc_head.weight"),
        "labels.bias": "ctc_head.bias",
    }


def _layer(config: ConformerCtcConfig) -> Names:
    parts = ("weight", "bias") if config.style.bias else ("weight",)
    mixing = ("weight", "bias") if config.convolution_bias else ("weight",)
    biases = [f"self_attn.{part}_proj.bias" for part in ("q", "k", "v") if config.style.bias]
    # The kernel, its own bias if it has one, and the norm behind it.
    norm = [f"conv.norm.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    bias = ["conv.depthwise_conv.bias"] if config.convolution_bias else []
    table: dict[str, Source | str] = {}
    for ours, theirs in (("first", "feed_forward1"), ("second", "feed_forward2")):
        table |= both(f"{ours}.up_proj", f"{theirs}.linear1", *parts)
        table |= both(f"{ours}.down_proj", f"{theirs}.linear2", *parts)
        table |= both(f"{ours}_norm", f"norm_{theirs}")
    for part in mixing:
        make = _matrix if part == "weight" else _same
        table[f"convolution.pointwise_1.{part}"] = computed(make, f"conv.pointwise_conv1.{part}")
        table[f"convolution.pointwise_2.{part}"] = computed(make, f"conv.pointwise_conv2.{part}")
    return {
        **table,
        "attention.qkv.weight": rows("self_attn.{q,k,v}_proj.weight"),
        "attention.qkv.bias": computed(_with_u, "self_attn.bias_u", *biases),
        "attention.offset_keys.weight": "self_attn.relative_k_proj.weight",
        "attention.offset_bias": computed(torch.sub, "self_attn.bias_v", "self_attn.bias_u"),
        **both("attention.output", "self_attn.o_proj", *parts),
        "convolution.convolution.weight": computed(_normed_kernel, "conv.depthwise_conv.weight", *norm),
        "convolution.convolution.bias": computed(_normed_bias, *norm, *bias),
        **both("attention_norm", "norm_self_att"),
        **both("convolution_norm", "norm_conv"),
        **both("norm", "norm_out"),
    }


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _matrix(kernel: Tensor) -> Tensor:
    """Return a convolution over single places as the product that it is."""
    if kernel.shape[-1] != 1:
        raise CheckpointError(f"a convolution over single places has a kernel of {kernel.shape[-1]}")
    return kernel.squeeze(-1)


def _with_u(u: Tensor, *biases: Tensor) -> Tensor:
    """Return the bias of queries, keys and values, u added to that of queries."""
    query, key, value = biases or [torch.zeros(u.numel())] * 3
    return torch.cat((query + u.flatten(), key, value))


def _normed_kernel(kernel: Tensor, weight: Tensor, _bias: Tensor, _mean: Tensor, variance: Tensor) -> Tensor:
    return kernel * (weight / (variance + _BATCH_NORM_EPS).sqrt())[:, None, None]


def _normed_bias(weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, own: Tensor | None = None) -> Tensor:
    centre = -mean if own is None else own - mean
    return centre * weight / (variance + _BATCH_NORM_EPS).sqrt() + bias


PARAKEET = Converter(
    model_type="parakeet_ctc",
    architectures=("ParakeetForCTC",),
    family="conformer_ctc",
    sizes=sizes,
    names=names,
    ignored=(r"encoder\.layers\.\d+\.conv\.norm\.num_batches_tracked",),
    follows_settings=False,
)
CONVERTERS = (PARAKEET,)
