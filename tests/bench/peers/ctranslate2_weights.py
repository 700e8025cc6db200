"""Our checkpoints as CTranslate2 models, tensor by tensor."""

import json

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from safetensors.numpy import load_file

UNKNOWN, START, END = "<unk>", "<s>", "</s>"


def vocabulary(size):
    """The string of each id; ids are strings to CTranslate2."""
    return ["<pad>", UNKNOWN, START, END, *(f"w{index}" for index in range(size - 4))]


def translation_spec(folder):
    """The encoder-decoder of `folder`/checkpoint."""
    sizes, tensors = _read(folder)
    layers = (sizes["num_encoder_layers"], sizes["num_decoder_layers"])
    gelu = common_spec.Activation.GELU
    spec = transformer_spec.TransformerSpec.from_config(layers, sizes["num_heads"], activation=gelu)
    (words,) = spec.encoder.embeddings
    words.weight = tensors["embedding.tokens.weight"]
    spec.encoder.position_encodings.encodings = _sinusoids(sizes["max_source_tokens"], sizes["d_model"])
    _norm(spec.encoder.layer_norm, tensors, "encoder.norm")
    for index, layer in enumerate(spec.encoder.layer):
        name = f"encoder.layers.{index}"
        _self_attention(layer.self_attention, tensors, f"{name}.attention", f"{name}.attention_norm")
        _feed_forward(layer.ffn, tensors, name)
    decoder = spec.decoder
    decoder.embeddings.weight = decoder.projection.weight = tensors["decoder.embedding.tokens.weight"]
    decoder.position_encodings.encodings = _sinusoids(sizes["max_target_tokens"], sizes["d_model"])
    _norm(decoder.layer_norm, tensors, "decoder.norm")
    for index, layer in enumerate(decoder.layer):
        name = f"decoder.layers.{index}"
        _self_attention(layer.self_attention, tensors, f"{name}.self_attention", f"{name}.self_attention_norm")
        _cross_attention(layer.attention, tensors, name)
        _feed_forward(layer.ffn, tensors, name)
    spec.register_source_vocabulary(vocabulary(sizes["source_vocab_size"]))
    spec.register_target_vocabulary(vocabulary(sizes["target_vocab_size"]))
    spec.config.layer_norm_epsilon = 1e-5
    return spec


def llama_spec(folder):
    """The generator of `folder`/checkpoint."""
    sizes, tensors = _read(folder)
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        sizes["num_layers"],
        sizes["num_heads"],
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=sizes["rope_theta"],
        num_heads_kv=sizes["num_kv_heads"],
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = tensors["embedding.weight"]
    decoder.layer_norm.gamma = tensors["norm.weight"]
    for index, layer in enumerate(decoder.layer):
        name = f"layers.{index}"
        layer.self_attention.layer_norm.gamma = tensors[f"{name}.attention_norm.weight"]
        layer.self_attention.linear[0].weight = tensors[f"{name}.attention.qkv.weight"]
        layer.self_attention.linear[1].weight = tensors[f"{name}.attention.output.weight"]
        layer.ffn.layer_norm.gamma = tensors[f"{name}.feed_forward_norm.weight"]
        layer.ffn.linear_0.weight = tensors[f"{name}.feed_forward.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = tensors[f"{name}.feed_forward.up_proj.weight"]
        layer.ffn.linear_1.weight = tensors[f"{name}.feed_forward.down_proj.weight"]
    spec.register_vocabulary(vocabulary(sizes["vocab_size"]))
    spec.config.layer_norm_epsilon = sizes["norm_eps"]
    return spec


def _read(folder):
    config = json.loads((folder / "checkpoint" / "config.json").read_text())
    return config["model"], load_file(folder / "checkpoint" / "model.safetensors")


def _sinusoids(positions, width):
    """Our table: sine and cosine in turn, where CTranslate2's own has the sines first."""
    angle = np.arange(positions)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(positions, width).astype(np.float32)


def _norm(spec, tensors, name):
    spec.gamma, spec.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _linear(spec, tensors, *names):
    """Several of ours stand one above the other in one of theirs."""
    spec.weight = np.concatenate([tensors[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([tensors[f"{name}.bias"] for name in names])


def _self_attention(spec, tensors, name, norm):
    _norm(spec.layer_norm, tensors, norm)
    _linear(spec.linear[0], tensors, f"{name}.qkv")
    _linear(spec.linear[1], tensors, f"{name}.output")


def _cross_attention(spec, tensors, layer):
    _norm(spec.layer_norm, tensors, f"{layer}.cross_attention_norm")
    _linear(spec.linear[0], tensors, f"{layer}.cross_attention.query")
    _linear(spec.linear[1], tensors, f"{layer}.cross_attention.key", f"{layer}.cross_attention.value")
    _linear(spec.linear[2], tensors, f"{layer}.cross_attention.output")


def _feed_forward(spec, tensors, layer):
    _norm(spec.layer_norm, tensors, f"{layer}.feed_forward_norm")
    _linear(spec.linear_0, tensors, f"{layer}.feed_forward.up_proj")
    _linear(spec.linear_1, tensors, f"{layer}.feed_forward.down_proj")
