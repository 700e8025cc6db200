"""The generator's weights in llama.cpp's form: a GGUF file for each type of numbers."""

import json

import gguf
import safetensors.numpy
from adapter import HUGGING_FACE

TYPES = {
    "fp32": gguf.GGMLQuantizationType.F32,
    "int8": gguf.GGMLQuantizationType.Q8_0,
    "int4": gguf.GGMLQuantizationType.Q4_0,
}


def gguf_file(folder, precision):
    """The file `folder`/llamacpp-<type>.gguf, written from the Hugging Face folder unless it is there."""
    kind = TYPES[precision]
    path, fresh = (folder / f"llamacpp-{kind.name}.gguf{end}" for end in ("", ".fresh"))
    if path.is_file():
        return path
    source = folder / HUGGING_FACE
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(fresh, "llama")
    _write_config(writer, config)
    _write_vocabulary(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in safetensors.numpy.load_file(source / "model.safetensors").items():
        rows = _rotated_in_pairs(name, tensor, config)
        # Norms stay as they are. The embedding is the projection too, and so it is rounded.
        own = kind if rows.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(names.get_name(name, (".weight",)), gguf.quantize(rows, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fresh.rename(path)
    return path


def _write_config(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_vocabulary(writer, config):
    """Write words that say their ids: it takes ids, and answers in text."""
    number = config["vocab_size"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{index}>" for index in range(number)])
    writer.add_token_scores([0.0] * number)
    writer.add_token_types([gguf.TokenType.NORMAL] * number)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _rotated_in_pairs(name, tensor, config):
    """Queries and keys in llama.cpp's order: a head's two halves, which are rotated together, lie beside each other."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    number = next((each for part, each in heads.items() if part in name), None)
    if number is None:
        return tensor
    halves = tensor.reshape(number, 2, -1, tensor.shape[1])
    return halves.swapaxes(1, 2).reshape(tensor.shape).copy()
