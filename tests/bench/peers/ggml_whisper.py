"""Whisper's weights in whisper.cpp's own form: one file, older than GGUF. Its layout is read in whisper_model_load."""

import json
import re
import struct

import gguf
import numpy as np
import safetensors.numpy
from adapter import HUGGING_FACE
from transformers.audio_utils import mel_filter_bank

_MAGIC = 0x67676D6C
# What the whole file is said to be of: mostly such numbers.
_FILE_TYPES = {"F16": 1, "Q8_0": 7}
_NUM_FREQUENCIES, _RATE = 201, 16_000
# Its names are OpenAI's, and these are those of transformers.
_NAMES = (
    (r"^model\.", ""),
    (r"layers\.(\d+)\.", r"blocks.\1."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("self_attn", "attn"),
    ("encoder_attn", "cross_attn"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("final_layer_norm", "mlp_ln"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    (r"encoder\.layer_norm", "encoder.ln_post"),
    (r"decoder\.layer_norm", "decoder.ln"),
    (r"decoder\.embed_tokens", "decoder.token_embedding"),
    (r"embed_positions\.weight", "positional_embedding"),
)


def ggml_file(folder, kind):
    """The file `folder`/whispercpp-<kind>.bin, F16 or Q8_0, of the Hugging Face folder, written unless it is there."""
    path, fresh = (folder / f"whispercpp-{kind}.bin{end}" for end in ("", ".fresh"))
    if path.is_file():
        return path
    source = folder / HUGGING_FACE
    config = json.loads((source / "config.json").read_text())
    with fresh.open("wb") as file:
        file.write(struct.pack("<12i", _MAGIC, *_sizes(config), _FILE_TYPES[kind]))
        _write_filters(file, config["num_mel_bins"])
        _write_tokens(file, json.loads((source / "tokenizer.json").read_text()))
        for name, tensor in safetensors.numpy.load_file(source / "model.safetensors").items():
            if name != "proj_out.weight":
                _write_tensor(file, _their_name(name), tensor.astype(np.float32), gguf.GGMLQuantizationType[kind])
    fresh.rename(path)
    return path


def _sizes(config):
    encoder = ("max_source_positions", "d_model", "encoder_attention_heads", "encoder_layers")
    decoder = ("max_target_positions", "d_model", "decoder_attention_heads", "decoder_layers")
    return [config[name] for name in ("vocab_size", *encoder, *decoder, "num_mel_bins")]


def _write_filters(file, num_mels):
    filters = mel_filter_bank(
        num_frequency_bins=_NUM_FREQUENCIES,
        num_mel_filters=num_mels,
        min_frequency=0.0,
        max_frequency=_RATE / 2,
        sampling_rate=_RATE,
        norm="slaney",
        mel_scale="slaney",
    )
    file.write(struct.pack("<2i", num_mels, _NUM_FREQUENCIES) + filters.T.astype("<f4").tobytes())


def _write_tokens(file, tokenizer):
    """Texts of the tokens before the special ones, which it makes itself; the vocabulary has a letter for each byte."""
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {each["content"] for each in tokenizer["added_tokens"]}
    texts = [bytes(_BYTES[letter] for letter in text) for text, _ in vocabulary if text not in special]
    file.write(struct.pack("<i", len(texts)))
    for text in texts:
        file.write(struct.pack("<i", len(text)) + text)


def _bytes_of_letters():
    """The byte that each letter of a byte-level vocabulary stands for (Radford et al. 2019)."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _bytes_of_letters()


def _their_name(name):
    for ours, theirs in _NAMES:
        name = re.sub(ours, theirs, name)
    return name


def _write_tensor(file, name, tensor, kind):
    """Products are of `kind`, convolutions of F16, all else float32; a bias of a convolution is a column."""
    own = {1: gguf.GGMLQuantizationType.F32, 2: kind, 3: gguf.GGMLQuantizationType.F16}[tensor.ndim]
    if "positional_embedding" in name:
        own = gguf.GGMLQuantizationType.F32
    if name.endswith(("conv1.bias", "conv2.bias")):
        tensor = tensor[:, None]
    spelled = name.encode()
    file.write(struct.pack("<3i", tensor.ndim, len(spelled), own.value))
    file.write(struct.pack(f"<{tensor.ndim}i", *tensor.shape[::-1]) + spelled)
    file.write(gguf.quantize(np.ascontiguousarray(tensor), own).tobytes())
