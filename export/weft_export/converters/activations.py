"""What transformers calls the activations of feed-forward layers."""

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}
"""Their word to ours, which is a key of weft_export.layers.feed_forward.ACTIVATIONS."""
