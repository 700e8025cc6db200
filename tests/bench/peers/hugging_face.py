"""Our checkpoints' weights as Hugging Face folders: the same numbers under other names.

The harness writes them: adapters have no exporter, whose tables of names are read here.
"""

import json
import shutil
import tempfile
from pathlib import Path

import safetensors.torch
import torch
from adapter import HUGGING_FACE

from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import source_of
from weft_export.families.decoder_only import DecoderOnlyConfig

QKV = ("query", "key", "value")
_LLAMA_SIZES = ("vocab_size", "max_tokens", "d_model", "num_heads", "num_kv_heads", "d_ff", "num_layers")


def write_hugging_face(folder):
    """Write the folder `folder`/hugging-face from `folder`/checkpoint (causal_lm, bert, vit), unless it is there."""
    directory = folder / HUGGING_FACE
    if directory.is_dir():
        return
    checkpoint = folder / "checkpoint"
    config = json.loads((checkpoint / "config.json").read_text())
    sizes, rename = _FAMILIES[config["family"]]
    ours = safetensors.torch.load_file(checkpoint / "model.safetensors")
    theirs = {name: tensor.contiguous() for name, tensor in rename(ours, config["model"])}
    work = Path(tempfile.mkdtemp(dir=folder))
    safetensors.torch.save_file(theirs, work / "model.safetensors", metadata={"format": "pt"})
    (work / "config.json").write_text(json.dumps(sizes(config), indent=2))
    if "text" in config:
        shutil.copy(checkpoint / config["text"]["source_tokenizer"], work / "tokenizer.json")
        names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNKNOWN]"}
        (work / "tokenizer_config.json").write_text(json.dumps(names))
    work.chmod(0o755)
    work.rename(directory)


def _same(ours, name, theirs):
    """Yield the weight, and the bias if there is one, of a layer that only changes its name."""
    for part in ("weight", "bias"):
        if f"{name}.{part}" in ours:
            yield f"{theirs}.{part}", ours[f"{name}.{part}"]


def _rows(sizes):
    """How many rows of our one projection are queries, keys and values."""
    head_dim = sizes["d_model"] // sizes["num_heads"]
    kv_heads = sizes.get("num_kv_heads", sizes["num_heads"])
    return [head_dim * number for number in (sizes["num_heads"], kv_heads, kv_heads)]


def _qkv(ours, name, theirs, sizes):
    """Our one projection as theirs: queries, keys and values are its rows, in this order, head by head."""
    for part in ("weight", "bias"):
        if f"{name}.{part}" in ours:
            split = ours[f"{name}.{part}"].split(_rows(sizes))
            yield from ((f"{their}.{part}", tensor) for their, tensor in zip(theirs, split, strict=True))


def _llama(ours, sizes):
    """The table of the exporter's converter, read backwards. Its queries, keys and values are three names for one."""
    table = LLAMA.names(DecoderOnlyConfig(**{name: sizes[name] for name in _LLAMA_SIZES}))
    for name, tensor in ours.items():
        source = source_of(table, "embeddings.tokens.weight" if name == "embedding.weight" else name)
        theirs = source.names[:1] if source.needs_one else source.names
        parts = tensor.split(_rows(sizes)) if len(theirs) == len(QKV) else [tensor]
        yield from zip(theirs, parts, strict=True)


def _encoder(ours, sizes, name, theirs, names):
    """The layers of BERT and ViT. names: their words for self-attention, its norm and the feed-forward network's."""
    attention, attention_norm, feed_forward_norm = names
    for index in range(sizes["num_layers"]):
        our, their = f"{name}.layers.{index}", f"{theirs}.encoder.layer.{index}"
        yield from _qkv(ours, f"{our}.attention.qkv", [f"{their}.attention.{attention}.{part}" for part in QKV], sizes)
        yield from _same(ours, f"{our}.attention.output", f"{their}.attention.output.dense")
        yield from _same(ours, f"{our}.attention_norm", f"{their}.{attention_norm}")
        yield from _same(ours, f"{our}.feed_forward.up_proj", f"{their}.intermediate.dense")
        yield from _same(ours, f"{our}.feed_forward.down_proj", f"{their}.output.dense")
        yield from _same(ours, f"{our}.feed_forward_norm", f"{their}.{feed_forward_norm}")


def _bert(ours, sizes):
    yield from _same(ours, "body.embedding.tokens", "bert.embeddings.word_embeddings")
    yield from _same(ours, "body.embedding.positions", "bert.embeddings.position_embeddings")
    # Our positions hold the vector of the one segment.
    yield "bert.embeddings.token_type_embeddings.weight", torch.zeros(2, sizes["d_model"])
    yield from _same(ours, "body.norm", "bert.embeddings.LayerNorm")
    yield from _encoder(ours, sizes, "body.encoder", "bert", ("self", "attention.output.LayerNorm", "output.LayerNorm"))
    yield from _same(ours, "pooler", "bert.pooler.dense")
    yield from _same(ours, "head", "classifier")


def _vit(ours, sizes):
    yield "vit.embeddings.cls_token", ours["class_token"]
    yield "vit.embeddings.position_embeddings", ours["positions"][None]
    # Our linear layer reads a patch channel by channel and row by row, as a convolution does.
    patch = (sizes["d_model"], sizes["channels"], sizes["patch_size"], sizes["patch_size"])
    name = "vit.embeddings.patch_embeddings.projection"
    yield f"{name}.weight", ours["patches.projection.weight"].reshape(patch)
    yield f"{name}.bias", ours["patches.projection.bias"]
    yield from _encoder(ours, sizes, "encoder", "vit", ("attention", "layernorm_before", "layernorm_after"))
    yield from _same(ours, "encoder.norm", "vit.layernorm")
    yield from _same(ours, "head", "classifier")


def _common(model_type, architecture, sizes):
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "float32",
        "hidden_size": sizes["d_model"],
        "intermediate_size": sizes["d_ff"],
        "num_attention_heads": sizes["num_heads"],
        "num_hidden_layers": sizes["num_layers"],
    }


def _labels(config):
    return {str(index): label for index, label in enumerate(config["labels"])}


def _llama_config(config):
    sizes, text = config["model"], config["text"]
    return _common("llama", "LlamaForCausalLM", sizes) | {
        "vocab_size": sizes["vocab_size"],
        "max_position_embeddings": sizes["max_tokens"],
        "num_key_value_heads": sizes["num_kv_heads"],
        "head_dim": sizes["d_model"] // sizes["num_heads"],
        "hidden_act": "silu",
        "rms_norm_eps": sizes["norm_eps"],
        "rope_theta": sizes["rope_theta"],
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": text["end_ids"][0],
        "eos_token_id": text["end_ids"][0],
        "pad_token_id": text.get("pad_id", 0),
    }


def _bert_config(config):
    sizes = config["model"]
    return _common("bert", "BertForSequenceClassification", sizes) | {
        "vocab_size": sizes["vocab_size"],
        "max_position_embeddings": sizes["max_tokens"],
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": sizes["norm_eps"],
        "pad_token_id": config["text"].get("pad_id", 0),
        "id2label": _labels(config),
    }


def _vit_config(config):
    sizes = config["model"]
    return _common("vit", "ViTForImageClassification", sizes) | {
        "image_size": sizes["image_height"],
        "patch_size": sizes["patch_size"],
        "num_channels": sizes["channels"],
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,  # of our Encoder
        "qkv_bias": True,
        "id2label": _labels(config),
    }


_FAMILIES = {"causal_lm": (_llama_config, _llama), "bert": (_bert_config, _bert), "vit": (_vit_config, _vit)}
