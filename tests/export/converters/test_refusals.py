"""Directories of others that are wrong, hostile or not supported: each is refused by what is wrong with it."""

import json
import struct

import pytest
import safetensors.torch
import torch
from decoder_kinds import DECODERS
from encoder_kinds import CLASSIFIERS, TAGGERS
from hf_models import change_config, converted, made
from seq2seq_kinds import SEQ2SEQ

from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions

KINDS = {kind.name: kind for kind in DECODERS}
HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A directory of each kind, made when it is asked for."""
    made_already = {}

    def original(name):
        if name not in made_already:
            made_already[name] = tmp_path_factory.mktemp(name)
            made(KINDS[name], 0, made_already[name])
        return made_already[name]

    return original


def copied(original, directory):
    """Copy a directory's files, which are small."""
    for path in original.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


def refused(directory, complaint):
    """Expect that a directory is refused with a complaint."""
    with pytest.raises(CheckpointError, match=complaint):
        converted(directory)


@pytest.mark.parametrize(
    ("kind", "fields", "complaint"),
    [
        ("llama", {"model_type": "new"}, "'new' is not supported; its class NewModel is code of its authors"),
        ("llama", {"model_type": "internvl"}, "'internvl' is not supported; it reads a picture in the grid of tiles"),
        (
            "llama",
            {"model_type": "mistral3"},
            "'mistral3' is not supported; tokens stand between the rows of a picture",
        ),
        ("llama", {"model_type": "lama"}, "'lama' is not supported; the nearest is 'llama'"),
        ("llama", {"model_type": "xq9", "architectures": None}, "is not supported; supported are .*llama"),
        ("llama", {"architectures": ["LlamaForTokenClassification"]}, "of llama, LlamaForCausalLM, LlamaModel are"),
        ("llama", {"model_type": ["llama"]}, "model_type must be a string"),
        ("llama", {"new_trick": 3}, r"may change the arithmetic: new_trick \(3\)"),
        ("llama", {"quantization_config": {"bits": 4}}, "quant_method is None: it is not read"),
        ("llama", {"hidden_act": "mish"}, "hidden_act is 'mish': it is not supported; known are"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved is True"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 0}}, "no rotation can be made"),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "rope_parameters has no factor"),
        ("llama", {"hidden_size": 10**9}, "d_model must be a whole number in"),
        ("llama", {"hidden_size": "64"}, "hidden_size is '64': it must be a whole number"),
        ("llama", {"num_hidden_layers": 10**9}, "num_layers must be a whole number in"),
        ("llama", {"num_hidden_layers": 200}, "num_layers is 200, but .* tensors in all"),
        ("llama", {"num_attention_heads": 0}, "num_heads must be a whole number in"),
        ("llama", {"vocab_size": 2**20, "hidden_size": 2**16}, r"would be \[80\] and must be \[65536\]; made of model"),
        ("llama", {"intermediate_size": 96}, r"feed_forward.* would be .* and must be"),
        ("llama", {"num_key_value_heads": 9}, "must be a multiple of num_kv_heads"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True"),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("qwen2", {"layer_types": ["chunked_attention"]}, "layer_types"),
        ("qwen3", {"head_dim": 20}, "head_dim is 20: it must be a multiple of 16"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0: it must be above 0"),
        ("gemma3", {"attn_logit_softcapping": 2.0}, "attn_logit_softcapping is 2.0"),
        ("gemma3", {"rope_parameters": {"sliding_attention": HALF}}, "sliding_attention: partial_rotary_factor is 0.5"),
        ("phi3", {"rope_parameters": LONGROPE, "max_position_embeddings": None}, "has no max_position_embeddings"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm is True"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm is True"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before is False"),
        ("opt", {"word_embed_proj_dim": 8}, "word_embed_proj_dim is 8"),
        ("opt", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm is True"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "post_layernorm is True"),
        ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn is False"),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv is 8.0"),
    ],
)
def test_a_config_that_is_not_supported_is_refused_by_name(kind, fields, complaint, originals, tmp_path):
    """A kind of model, or a field that changes what it computes: the message names it, and nothing is made."""
    directory = copied(originals(kind), tmp_path)
    change_config(directory, **fields)
    refused(directory, complaint)


def test_a_context_beyond_the_table_of_places_is_refused(originals):
    """GPT-2 has a vector for each of 100 places, and not for more."""
    with pytest.raises(CheckpointError, match="--max-tokens 101: the model takes 100 tokens"):
        converted(originals("gpt2"), max_tokens=101)


def change_weights(directory, change):
    """Rewrite model.safetensors through a function."""
    path = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    change(tensors)
    safetensors.torch.save_file(tensors, path)


def test_missing_and_unused_weights_are_listed(originals, tmp_path):
    """All of both kinds are in one message, as far as it has room."""
    directory = copied(originals("llama"), tmp_path)

    def change(tensors):
        del tensors["model.norm.weight"]
        tensors["model.layers.0.self_attn.lora.weight"] = torch.zeros(2)

    change_weights(directory, change)
    refused(directory, "1 weights are missing: model.norm.weight; 1 tensors .* not used: .*0.self_attn.lora.weight")


def test_an_output_projection_that_is_not_the_table_is_refused(originals, tmp_path):
    """Transformers keeps both where they differ, whatever the config says: we do not guess."""
    directory = copied(originals("bloom"), tmp_path)
    change_config(directory, tie_word_embeddings=True)
    table = safetensors.torch.load_file(directory / "model.safetensors")["transformer.word_embeddings.weight"]
    change_weights(directory, lambda tensors: tensors.update({"lm_head.weight": table + 1}))
    refused(directory, "differ in the files, and config.json says that they are tied")


def test_a_header_longer_than_its_file_is_refused(originals, tmp_path):
    """The first eight bytes may say any length."""
    directory = copied(originals("llama"), tmp_path)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    refused(directory, "is not a safetensors file")


class Code:
    """What runs when it is unpickled by who allows it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        """Make a file."""
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("old", [True, False], ids=["old", "zip"])
def test_a_pickle_with_code_is_refused_and_not_run(old, originals, tmp_path):
    """Whatever the pickle asks for, nothing happens."""
    directory = copied(originals("llama"), tmp_path)
    (directory / "model.safetensors").unlink()
    content = {"model.norm.weight": Code(tmp_path / "it-ran")}
    torch.save(content, directory / "pytorch_model.bin", _use_new_zipfile_serialization=not old)

    refused(directory, r"that is read without running code: it asks for .*\.open, which is no tensor")
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ({"weight_map": {"a": "../model.safetensors"}}, "is not the name of a file in the checkpoint"),
        ({"weight_map": {"a": "/etc/passwd"}}, "is not the name of a file in the checkpoint"),
        ({"weight_map": {"a": "config.json"}}, "which is no such file of weights"),
        ({"weight_map": {"a": "gone.safetensors"}}, "gone.safetensors, which is missing"),
        ({"weight_map": {}}, "names 0 files"),
        ({"weight_map": {str(each): f"{each}.safetensors" for each in range(2000)}}, "names 2000 files"),
        ([], "it has no weight_map"),
    ],
    ids=["parent", "absolute", "other", "gone", "none", "many", "list"],
)
def test_an_index_that_leads_elsewhere_is_refused(index, complaint, originals, tmp_path):
    """An index names files of its own directory."""
    directory = copied(originals("llama"), tmp_path)
    (directory / "model.safetensors").unlink()
    (directory / INDEX).write_text(json.dumps(index))
    refused(directory, complaint)


def test_a_directory_without_weights_says_what_is_there(originals, tmp_path):
    """Weights by another name are named."""
    directory = copied(originals("llama"), tmp_path)
    (directory / "model.safetensors").rename(directory / "model.gguf")
    refused(directory, "has no weights: .*; model.gguf is there: give the path of that file")


def test_a_bundle_beyond_longrope_s_first_context_says_so(tmp_path):
    """Transformers changes the rotation at that length, and a bundle cannot: a longer bundle comes with a note."""
    made(KINDS["phi3"], 0, tmp_path)
    factors = json.loads((tmp_path / "config.json").read_text())
    turned = int(factors["hidden_size"] / factors["num_attention_heads"] * factors.get("partial_rotary_factor", 1)) // 2
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * turned, "long_factor": [2.0] * turned}
    change_config(tmp_path, rope_parameters=rope, original_max_position_embeddings=32, max_position_embeddings=128)

    assert not any("longrope" in note for note in convert(tmp_path, ExportOptions(max_tokens=32)).notes)
    assert any("longrope" in note for note in convert(tmp_path, ExportOptions(max_tokens=33)).notes)


def refused_as(directory, kind, complaint, **fields):
    """Change a kind's config.json, and expect a refusal."""
    made(kind, 0, directory)
    change_config(directory, **fields)
    with pytest.raises(CheckpointError, match=complaint):
        converted(directory)


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("modernbert", {"rope_parameters": {"full_attention": HALF}}, "full_attention: partial_rotary_factor is 0.5"),
        ("modernbert", {"local_attention": 1}, "local_attention is 1: it must be at least 2"),
        ("debertav2", {"position_buckets": 8, "max_relative_positions": 5}, "max_relative_positions is 5: it must be"),
        ("modernbert", {"hidden_size": 2**23, "num_attention_heads": 1}, "cannot turn heads"),
        ("debertav2", {"position_buckets": 1}, "num_buckets must be at least 2"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets is .*; only 32 is"),
        ("bert-tags", {"id2label": {"0": "LABEL_0"}}, "id2label is .*: it must be of 2 labels at least"),
        ("bert", {"id2label": {}}, "id2label is .*: it must be of 1 label at least"),
        ("bart", {"bad_words_ids": 5}, "bad_words_ids is 5"),
        ("t5", {"dense_act_fn": "silu", "feed_forward_proj": "relu"}, "dense_act_fn is 'silu'"),
    ],
)
def test_what_else_a_config_may_say_wrong(name, fields, complaint, tmp_path):
    """Numbers that leave nothing, or take memory, and fields that contradict each other are refused by name."""
    kind = next(kind for kind in (*CLASSIFIERS, *TAGGERS, *SEQ2SEQ) if kind.name == name)
    if name == "bart":
        made(kind, 0, tmp_path)
        (tmp_path / "generation_config.json").unlink()
        change_config(tmp_path, **fields)
        with pytest.raises(CheckpointError, match=complaint):
            converted(tmp_path)
    else:
        refused_as(tmp_path, kind, complaint, **fields)


def test_tied_weights_that_differ_are_refused(tmp_path):
    """Transformers would take the projection that is in the file; nobody may take the other in silence."""
    made(next(kind for kind in SEQ2SEQ if kind.name == "bart"), 0, tmp_path)
    path = tmp_path / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["lm_head.weight"] = weights["model.shared.weight"] + 1
    safetensors.torch.save_file(weights, path)

    with pytest.raises(CheckpointError, match="differ in the files"):
        converted(tmp_path)


def test_a_start_without_a_position_is_refused(tmp_path):
    """M2M-100 counts positions from behind its padding tokens, and so has none for a start that is one."""
    made(next(kind for kind in SEQ2SEQ if kind.name == "m2m_100"), 0, tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": 1}))
    with pytest.raises(CheckpointError, match="decoder_start_token_id is 2: it cannot be the padding token"):
        converted(tmp_path)


def test_null_is_no_scale(tmp_path):
    """T5 takes null for false, and what is not there for what its other fields say."""
    made(next(kind for kind in SEQ2SEQ if kind.name == "t5"), 0, tmp_path)
    scaled = []
    for value in (None, True):
        change_config(tmp_path, scale_decoder_outputs=value)
        scaled.append(converted(tmp_path).model.config.scaled_projection)

    assert [False, True] == scaled


def test_what_a_class_takes_for_granted_of_writing_counts_for_nothing(tmp_path):
    """BART's class starts with 2 and forces it as the end. Of a directory transformers reads what the file says."""
    made(next(kind for kind in SEQ2SEQ if kind.name == "bart"), 0, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    path = tmp_path / "config.json"
    given = json.loads(path.read_text()) | {"bos_token_id": 5}
    del given["decoder_start_token_id"], given["forced_eos_token_id"]
    path.write_text(json.dumps(given))
    text = converted(tmp_path).text

    assert 5 == text.start_id
    assert not text.HasField("forced_end_id")


def test_what_a_class_takes_for_granted(tmp_path):
    """An old config.json names no activation: the class of transformers says it."""
    made(next(kind for kind in SEQ2SEQ if kind.name == "m2m_100"), 0, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    path = tmp_path / "config.json"
    given = json.loads(path.read_text()) | {"bad_words_ids": [[2], [5]]}
    del given["activation_function"]
    path.write_text(json.dumps(given))
    checkpoint = converted(tmp_path)

    assert "relu" == checkpoint.model.config.style.activation
    assert 2 == checkpoint.text.start_id
    banned = checkpoint.model.decoder.embedding.bias < -1
    assert [5] == banned.nonzero().flatten().tolist()
