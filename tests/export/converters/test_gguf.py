"""GGUF files: what ggml's own library writes is read as the model and the tokenizer that it was made of."""

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf_files import BY_NAME, KINDS, model_of, write_gguf
from hf_models import LOGITS, furthest, token_rows
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.converters.gguf.block_types import BLOCK_TYPES, OTHER_TYPES, widened
from weft_export.converters.gguf.convert_file import convert_file
from weft_export.errors import CheckpointError
from weft_export.layers.block_linear import FOUR_BITS, BlockLinear
from weft_export.options import ExportOptions

TEXTS = [
    "hello hello",
    "  two  spaces",
    "a\nb\n\n\nc",
    "don't 12345",
    "漢字 é ﬁ",
    "<bos>x<end>y<unused0>a<unused1>",
    "",
    " ",
]


def read(path, **choices) -> Checkpoint:
    """Convert a file."""
    return convert_file(path, ExportOptions(**{"max_tokens": 96, **choices})).checkpoint


def logits(model, ids):
    """Return the logits of one row: of theirs or of ours."""
    with torch.inference_mode():
        return model.decode(ids)[0] if hasattr(model, "config") and hasattr(model, "decode") else model(ids).logits[0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("stored", [Type.F32, Type.Q8_0], ids=lambda stored: stored.name)
def test_a_file_answers_as_the_model_that_it_was_made_of(kind, stored, tmp_path):
    """Logits within 1e-4 of the class of transformers that has the weights of the file, plain or rounded."""
    model = model_of(kind, tmp_path)
    write_gguf(kind, model, tmp_path / "model.gguf", stored)
    ids = torch.tensor(token_rows(300, (96,)))

    ours = read(tmp_path / "model.gguf")

    assert LOGITS >= furthest(logits(ours.model, ids), logits(model, ids))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.same], ids=lambda kind: kind.name)
def test_a_file_answers_as_transformers_reads_it(kind, tmp_path):
    """Logits within 1e-4 of transformers' own reader of GGUF, for those kinds of which it reads every size."""
    write_gguf(kind, model_of(kind, tmp_path), tmp_path / "model.gguf", Type.Q4_0)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).eval()
    ids = torch.tensor(token_rows(300, (96,)))

    assert LOGITS >= furthest(logits(read(tmp_path / "model.gguf").model, ids), logits(theirs, ids))


@pytest.mark.parametrize(
    "rope",
    [
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 40,
            "rope_theta": 500000.0,
        },
        {"rope_type": "linear", "factor": 2.5, "rope_theta": 5000.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_a_stretched_rotation_is_the_one_of_the_model(rope, tmp_path):
    """Llama 3.1's factors, linear scaling and YaRN, which transformers' own reader of GGUF leaves out silently."""
    model = model_of(BY_NAME["llama"], tmp_path, rope_parameters=rope)
    write_gguf(BY_NAME["llama"], model, tmp_path / "model.gguf")
    ids = torch.tensor(token_rows(300, (96,)))

    assert LOGITS >= furthest(logits(read(tmp_path / "model.gguf").model, ids), logits(model, ids))


def test_a_head_that_turns_in_part_is_the_one_of_the_model(tmp_path):
    """As in Phi 4 mini: rope.dimension_count says how many numbers of a head turn."""
    rope = {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5}
    model = model_of(BY_NAME["phi3"], tmp_path, rope_parameters=rope)
    write_gguf(BY_NAME["phi3"], model, tmp_path / "model.gguf")
    ids = torch.tensor(token_rows(300, (48,)))

    assert LOGITS >= furthest(logits(read(tmp_path / "model.gguf").model, ids), logits(model, ids))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_tokenizer_inside_reads_and_writes_as_transformers_makes_it(name, tmp_path):
    """Byte-level BPE and SentencePiece's, with special tokens in the text and several spaces in a row."""
    write_gguf(BY_NAME[name], model_of(BY_NAME[name], tmp_path), tmp_path / "model.gguf")
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    ours = Tokenizer.from_str(read(tmp_path / "model.gguf").files["tokenizer.json"].decode())

    ids = [theirs(text).input_ids for text in TEXTS]
    assert ids == [ours.encode(text).ids for text in TEXTS]
    assert theirs.batch_decode(ids) == ours.decode_batch(ids, skip_special_tokens=False)


def test_every_end_that_a_file_names_ends_an_answer(tmp_path):
    """A file of a chat model has the end of a turn beside the end of a text."""
    kind = BY_NAME["llama"]
    write_gguf(kind, model_of(kind, tmp_path), tmp_path / "model.gguf", **{"tokenizer.ggml.eot_token_id": 7})

    assert [1, 7] == sorted(read(tmp_path / "model.gguf").text.end_ids)


def test_the_template_inside_makes_a_prompt_of_messages(tmp_path):
    """tokenizer.chat_template becomes the template of the bundle, with the tokens that it asks for."""
    kind, template = BY_NAME["llama"], "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    write_gguf(kind, model_of(kind, tmp_path), tmp_path / "model.gguf", **{"tokenizer.chat_template": template})
    ours = read(tmp_path / "model.gguf")

    assert template.encode() == ours.files["chat_template.jinja"]
    assert ours.text.chat.bos_token != ""


def test_blocks_of_every_type_are_widened_as_ggml_does():
    """Random bytes of each type: float32 with the same bits as ggml's own library makes. Other types have their names.

    With float16 scales of any bits, there are infinities and what is no number among them.
    """
    generator = np.random.default_rng(0)
    for number, kind in BLOCK_TYPES.items():
        stored, count = Type(number), 5 if kind.is_rounded else 160
        content = generator.integers(0, 256, (count, kind.num_bytes), dtype=np.uint8)
        with np.errstate(all="ignore"):
            plain = {Type.F32: np.float32, Type.F16: np.float16}.get(stored)
            wanted = gguf.dequantize(content, stored) if plain is None else content.view(plain).astype(np.float32)
        wide = widened(torch.from_numpy(content.reshape(-1)), wanted.shape, kind)
        assert (stored.name, gguf.GGML_QUANT_SIZES[stored]) == (kind.name, (kind.numbers, kind.num_bytes))
        assert np.array_equal(wanted, wide.numpy(), equal_nan=True), kind.name
    assert all(Type(number).name == name for number, name in OTHER_TYPES.items())


def test_products_in_q4_0_keep_their_bits_at_int4(tmp_path):
    """int4 has the layout of Q4_0: blocks of 32, one scale of float16. Not a bit of a weight is lost on the way."""
    kind = BY_NAME["llama"]
    write_gguf(kind, model_of(kind, tmp_path), tmp_path / "model.gguf", Type.Q4_0)
    layer = read(tmp_path / "model.gguf").model.layers[1]

    for product in (
        layer.attention.qkv,
        layer.attention.output,
        layer.feed_forward.gate_proj,
        layer.feed_forward.down_proj,
    ):
        assert torch.equal(product.weight, BlockLinear(product.weight, None, FOUR_BITS).wide)


def test_parts_of_a_file_are_read_as_one(tmp_path):
    """Of model-00001-of-00002.gguf and so on any may be named; one that is missing is."""
    kind = BY_NAME["qwen2"]
    model = model_of(kind, tmp_path)
    path = tmp_path / "part-00001-of-00003.gguf"
    write_gguf(kind, model, tmp_path / "part.gguf", tensors_in_a_part=10)
    ids = torch.tensor(token_rows(300, (40,)))

    assert LOGITS >= furthest(logits(read(path.with_name("part-00002-of-00003.gguf")).model, ids), logits(model, ids))
    path.with_name("part-00003-of-00003.gguf").unlink()
    with pytest.raises(CheckpointError, match=r"part-00003-of-00003\.gguf is missing"):
        read(path)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"general.type": "mmproj"}, "holds no model, but what it calls 'mmproj'"),
        ({"llama.expert_count": 8}, "expert_count is 8: it is not supported"),
        ({"llama.logit_scale": 2}, "logit_scale"),
        ({"tokenizer.ggml.pre": "deepseek-coder"}, "ggml.pre is 'deepseek-coder': it is not read; known are"),
        ({"tokenizer.ggml.model": "rwkv"}, "ggml.model is 'rwkv': it is not read; llama and gpt2 are"),
        ({"tokenizer.ggml.eos_token_id": 70000}, "eos_token_id is 70000: it must be the id of one of 300 tokens"),
        ({"tokenizer.ggml.new_rule": 1}, "ggml.new_rule"),
        ({"unknown.key": 1}, "keys that are not known here: unknown.key"),
        ({"llama.rope.scaling.type": "su"}, "rope.scaling.type is 'su'"),
        ({"llama.attention.head_count_kv": 0}, "must be at least 1"),
    ],
)
def test_what_a_file_says_and_is_not_read_is_refused_by_its_name(keys, complaint, tmp_path):
    """A key that might change an answer is never left out silently."""
    kind = BY_NAME["llama"]
    write_gguf(kind, model_of(kind, tmp_path), tmp_path / "model.gguf", **keys)

    with pytest.raises(CheckpointError, match=complaint):
        read(tmp_path / "model.gguf")


def test_an_architecture_that_is_not_read_is_named(tmp_path):
    """The error names those that are."""
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(CheckpointError, match="architecture 'mamba' are not read; these are: gemma2, gemma3"):
        read(tmp_path / "model.gguf")
