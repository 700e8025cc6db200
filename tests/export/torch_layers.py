"""A layer of ours as one of torch's own, to hold it to."""

from torch import nn
from torch.nn import functional


def torch_layer(layer, config, *, pre_norm):
    """Copy a layer of BERT, or with pre_norm one of GPT, into nn.TransformerEncoderLayer."""
    copy = nn.TransformerEncoderLayer(
        config.d_model,
        config.num_heads,
        config.d_ff,
        dropout=0.0,
        activation=(lambda x: functional.gelu(x, approximate="tanh")) if pre_norm else "gelu",
        layer_norm_eps=config.norm_eps,
        batch_first=True,
        norm_first=pre_norm,
    ).eval()
    copy.self_attn.in_proj_weight, copy.self_attn.in_proj_bias = layer.attention.qkv.weight, layer.attention.qkv.bias
    for theirs, ours in (
        (copy.self_attn.out_proj, layer.attention.output),
        (copy.linear1, layer.feed_forward.up_proj),
        (copy.linear2, layer.feed_forward.down_proj),
        (copy.norm1, layer.attention_norm),
        (copy.norm2, layer.feed_forward_norm),
    ):
        theirs.load_state_dict(ours.state_dict())
    return copy
