"""Files of RWKV-LM: what its authors' package `rwkv` answers, an export of the same file answers."""

import asyncio
import json
import random

import pytest
import torch
from hf_models import LOGITS, furthest, token_rows
from rwkv_models import WORDS, opened, random_weights, saved, small_vocabulary, their_greedy, their_logits
from safetensors.torch import save_file

from loaded import Loaded, ask
from weft_export.checkpoints.formats import WORLD_FILE
from weft_export.converters.convert import convert
from weft_export.converters.rwkv_file import convert_file
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.flags import check_options
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2, generation_pb2

VOCAB = 280
MAX_TOKENS = 96
NUM_RANDOM, THREE_LAYERS = 20, 5
NEW_TOKENS = 24
"""How many tokens are written for a prompt."""
LENGTHS = (7, 1, 23, 12, 30, 3)


@pytest.fixture
def folder(tmp_path):
    """A folder with a small vocabulary."""
    assert VOCAB > small_vocabulary(tmp_path)
    return tmp_path


def read(path):
    """Convert a file."""
    return convert_file(path, ExportOptions(max_tokens=MAX_TOKENS)).checkpoint


def drawn(seed):
    """Sizes of a random model."""
    rng = random.Random(seed)
    return {
        "layers": rng.choice([1, 2, 3]),
        "heads": rng.choice([1, 2, 3]),
        "d_ff": rng.choice([64, 200, None]),
        "ranks": tuple(rng.choice([2, 4, 8, 24]) for _ in range(4)),
        "first_values": rng.random() < 0.5,
    }


@torch.inference_mode()
@pytest.mark.parametrize(
    "seed", [THREE_LAYERS, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 5 + NUM_RANDOM))]
)
def test_a_file_answers_as_its_authors_package(seed, folder):
    """Logits within 1e-4, and the same greedy tokens: read at once by us, and token by token by them."""
    path = saved(folder, random_weights(seed, **drawn(seed)))
    theirs, ours = opened(path), read(path).model
    ids = token_rows(VOCAB, (MAX_TOKENS - NEW_TOKENS,))[0]

    assert LOGITS >= furthest(ours(torch.tensor([ids]))[0], their_logits(theirs, ids))
    written = their_greedy(theirs, ids, NEW_TOKENS)
    assert written == ours(torch.tensor([ids + written]))[0, len(ids) - 1 : -1].argmax(dim=-1).tolist()


@torch.inference_mode()
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_released_file_has_half_of_the_bits(kind, folder):
    """It is widened before anything is computed, as by the package at float32."""
    path = saved(folder, {name: tensor.to(kind) for name, tensor in random_weights(0).items()})
    ids = token_rows(VOCAB, (24,))[0]
    assert LOGITS >= furthest(read(path).model(torch.tensor([ids]))[0], their_logits(opened(path), ids))


@pytest.mark.parametrize("precision", ["fp32", pytest.param("int8", marks=pytest.mark.long)])
def test_a_file_is_served_as_its_authors_package_answers(precision, folder):
    """Prompts of other lengths at once, each with the tokens that the package writes: at int8 with those it has alone.

    A chat is what the cards of the released models say, and a text cannot spell the end of texts.
    """
    path = saved(folder, random_weights(0))
    bundle = folder / "models" / "small" / "1"
    options = ExportOptions(max_tokens=MAX_TOKENS, no_score=True, precision=precision)
    export_checkpoint(path, bundle, options)
    prompts = token_rows(VOCAB, LENGTHS)
    decoding = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)
    chat = generation_pb2.Messages(turns=[generation_pb2.Message(role="user", content="then the\n\n\nthe")])

    async def run():
        async with Loaded(bundle, slots=8, lanes=1) as model:
            asked = [{"token_ids": common_pb2.TokenIds(ids=ids), "decoding": decoding} for ids in prompts]
            together = await asyncio.gather(*(ask(model, **each) for each in asked))
            alone = [await ask(model, **each) for each in asked]
            by_chat = await ask(model, messages=chat, decoding=decoding)
            by_text = await ask(model, text="User: then the\nthe\n\nAssistant:", decoding=decoding)
            return together, alone, by_chat, by_text

    together, alone, by_chat, by_text = asyncio.run(run())
    found = [list(answer.completion.token_ids) for answer in together]
    assert [list(answer.completion.token_ids) for answer in alone] == found
    assert by_text.completion.text == by_chat.completion.text
    if precision == "fp32":
        theirs = opened(path)
        assert [their_greedy(theirs, ids, NEW_TOKENS) for ids in prompts] == found


def as_a_directory(weights):
    """Return weights as flash-linear-attention's convert_from_rwkv7.py names and turns them, and its config.json."""
    top = {"emb": "model.embeddings", "ln_out": "model.norm", "head": "lm_head"}
    rooms = {"ln0": "pre_norm", "ln1": "attn_norm", "ln2": "ffn_norm", "att": "attn", "ffn": "ffn"}
    parts = {"receptance": "r_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj", "ln_x": "g_norm"}
    low_rank = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}
    tensors = {}
    for name, given in weights.items():
        tensor, words = given, name.split(".")
        if words[0] != "blocks":
            tensors[".".join((top[words[0]], *words[1:]))] = tensor
            continue
        room, what = words[2:4]
        if room == "att" and len(what) == 2:
            if what[0] == "v" and words[1] == "0":
                continue
            words[3] = f"{what[0]}_lora.lora.{low_rank[what[1]]}"
            tensor = tensor.flatten() if what[1] == "0" else tensor.t()
        elif room == "att":
            words[3] = parts.get(what, what)
        if what in {"k_k", "k_a"} or room == "ffn":
            tensor = tensor.squeeze()
        tensors[".".join(("model.layers", words[1], rooms[room], *words[3:]))] = tensor.contiguous()
    width = weights["emb.weight"].shape[1]
    config = {
        "model_type": "rwkv7",
        "architectures": ["RWKV7ForCausalLM"],
        "attn": None,
        "attn_mode": "chunk",
        "hidden_act": "sqrelu",
        "norm_eps": 1e-5,
        "norm_first": True,
        "norm_bias": True,
        "fuse_norm": False,
        "vocab_size": weights["emb.weight"].shape[0],
        "hidden_size": width,
        "hidden_ratio": 4.0,
        "intermediate_size": weights["blocks.0.ffn.key.weight"].shape[0],
        "num_hidden_layers": 2,
        "head_dim": 64,
        "num_heads": width // 64,
        "value_dim": [width] * 2,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
        **{
            f"{name}_low_rank_dim": weights[f"blocks.1.att.{name[0].replace('d', 'w')}1"].shape[1]
            for name in ("decay", "a", "v", "gate")
        },
    }
    return tensors, config


def directory_of(folder, weights, **more):
    """Write such a directory with the tokenizer of a file beside it."""
    (folder / "directory").mkdir()
    tensors, config = as_a_directory(weights)
    save_file(tensors, folder / "directory" / "model.safetensors")
    (folder / "directory" / "config.json").write_text(json.dumps({**config, **more}))
    tokenizer = read(saved(folder, weights)).files["tokenizer.json"]
    (folder / "directory" / "tokenizer.json").write_bytes(tokenizer)
    return folder / "directory"


@torch.inference_mode()
def test_a_directory_of_flash_linear_attention_has_the_same_weights(folder):
    """Under the names that its own converter gives them. Its class runs on no CPU."""
    weights = random_weights(0)
    directory = directory_of(folder, weights)
    found = convert(directory, ExportOptions(max_tokens=MAX_TOKENS)).checkpoint.model
    expected = read(folder / "small.pth").model
    ids = torch.tensor(token_rows(VOCAB, (24,)))
    assert torch.equal(expected(ids), found(ids))


def test_the_norm_of_a_head_goes_by_its_size(folder):
    """As in that class: of a .pth it is the same number."""
    directory = directory_of(folder, random_weights(0), norm_eps=1e-4)
    config = convert(directory, ExportOptions(max_tokens=MAX_TOKENS)).checkpoint.model.config
    assert (1e-4, 64e-4) == pytest.approx((config.norm_eps, config.time_mix.inner_norm_eps))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"norm_first": False}, "norm_first is False"),
        ({"norm_bias": False}, "norm_bias is False"),
        ({"attn": {"layers": [1]}}, "attn is"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"head_dim": 48}, "head_dim is 48: it must divide hidden_size"),
        ({"head_dim": 0}, "head_dim is 0: it must divide hidden_size"),
        ({"num_heads": 3}, "head_dim is 64: it must divide hidden_size, and num_heads be the quotient"),
        ({"value_dim": 256}, "value_dim is 256: it must be hidden_size, 128"),
        ({"gate_low_rank_dim": 11}, "sizes differ from config.json|must be"),
        ({"rope_theta": 5.0}, "rope_theta"),
    ],
)
def test_a_config_that_is_not_read_is_refused(change, complaint, folder):
    """By the field's name."""
    with pytest.raises(CheckpointError, match=complaint):
        convert(directory_of(folder, random_weights(0), **change), ExportOptions(max_tokens=MAX_TOKENS))


def test_a_directory_without_a_tokenizer_file_is_told_of_the_authors_file(folder):
    """Released ones have the vocabulary, and code that reads it, which is never run."""
    directory = directory_of(folder, random_weights(0))
    (directory / "tokenizer.json").rename(directory / WORLD_FILE)
    with pytest.raises(CheckpointError, match=rf"has {WORLD_FILE} and no tokenizer\.json: .* give their \.pth"):
        convert(directory, ExportOptions(max_tokens=MAX_TOKENS))


def without(*names):
    """A change that takes tensors away."""
    return lambda weights: [weights.pop(name) for name in names]


def put(name, tensor):
    """A change that puts a tensor in."""
    return lambda weights: weights.update({name: tensor})


def named(old, new):
    """A change of each name."""
    return lambda weights: [weights.update({name.replace(old, new): weights.pop(name)}) for name in [*weights]]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (named("att.r_k", "att.time_maa_x"), "small.pth is an RWKV 6: of files that end in .pth, those of an RWKV 7"),
        (without("blocks.0.att.r_k"), "small.pth is an RWKV 5"),
        (
            lambda weights: (named("att.ln_x", "x")(weights), named("att.r_k", "att.time_decay")(weights)),
            "is an RWKV 4",
        ),
        (put("blocks.0.ffn.s_emb.weight", torch.ones(2)), "an RWKV 7 with DeepEmbed"),
        (named("blocks", "layers"), "small.pth is no RWKV"),
        (without("blocks.1.ffn.x_k"), "small.pth: 1 weights are missing: model.layers.1.ffn.x_k"),
        (without("emb.weight"), "small.pth has no matrix emb.weight"),
        (put("emb.weight", torch.ones(3)), "small.pth has no matrix emb.weight"),
        (put("blocks.1.att.s", torch.ones(2)), "1 tensors of the files are not used"),
        (put("blocks.x.s", torch.ones(2)), "1 tensors of the files are not used"),
        (put("blocks.9999999.s", torch.ones(2)), "1 tensors of the files are not used"),
        (put("blocks.900.s", torch.ones(2)), "num_layers is 901, but .* has"),
        (put("blocks.0.att.r_k", torch.ones(4, 32)), "heads have 32 numbers; those of 64"),
        (put("blocks.0.att.w1", torch.ones(8)), "has no matrix blocks.0.att.w1"),
        (
            put("ln_out.bias", torch.ones(8, dtype=torch.int32)),
            "is of the type torch.int32",
        ),
        (put("blocks.1.att.w1", torch.ones(8, 2, 3)), r"made of model.layers.1.attn.w_lora.lora.0.weight .8, 2, 3."),
        (put("blocks.1.att.w0", torch.ones(3, 9)), "would be .27. and must be .128."),
    ],
)
def test_what_is_no_rwkv_7_is_refused(change, complaint, folder):
    """Other versions by their names, and a tensor by its own."""
    weights = random_weights(0)
    change(weights)
    with pytest.raises(CheckpointError, match=complaint):
        read(saved(folder, weights))


def test_a_file_of_another_maker_is_refused_without_running_it(folder):
    """What torch.load(weights_only=True) would not read is not looked up either."""
    path = folder / "other.pth"
    torch.save({"model": torch.nn.Linear(2, 2)}, path)
    with pytest.raises(CheckpointError, match="is not a file of weights that is read without running code"):
        read(path)
    path.write_bytes(b"PK\3\4")
    with pytest.raises(CheckpointError, match="is not a file of weights"):
        read(path)


def test_a_file_needs_its_vocabulary(folder):
    """Nothing in the weights says how a text is cut."""
    path = saved(folder, random_weights(0))
    (folder / WORLD_FILE).unlink()
    with pytest.raises(CheckpointError, match=f"has no {WORLD_FILE}, by which texts are cut. It lies in the package"):
        read(path)
    small_vocabulary(folder, [*WORDS, *(f"more{number}" for number in range(VOCAB))])
    with pytest.raises(CheckpointError, match=r"has the id 549, and the model has 280 tokens"):
        read(path)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"adapters": 4}, "adapters are not for a .pth file"),
        ({"precision": "fp16"}, "--precision fp16 is not for RWKV7ForCausalLM"),
        ({"paged": True, "precision": "fp16"}, "--precision fp16 is not for RWKV7ForCausalLM"),
        ({"mixed_runs": True}, "--mixed-runs is not for RWKV7ForCausalLM"),
        ({"pairs": True}, "--pairs is not for RWKV7ForCausalLM"),
    ],
)
def test_what_is_not_for_it_is_refused_before_a_weight_is_read(options, complaint, tmp_path):
    """The file is not opened."""
    (tmp_path / "small.pth").write_bytes(b"no weights")
    with pytest.raises(ExportError, match=complaint):
        check_options(tmp_path / "small.pth", ExportOptions(**options))
