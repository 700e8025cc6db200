"""Whatever the files of a checkpoint say, `weft export --check` says what would be made of it, or why nothing."""

import json
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bounded import Bounded
from mutations import FACTOR, budget, mutated_bytes, mutated_json
from weft_export.check import check
from weft_export.errors import ExportError
from weft_export.options import ExportOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "export" / "converters"))
# Checkpoints of our own kind, and of Hugging Face's: all kinds take too long for CI.
OWN = ("tiny-translate", "tiny-generate", "tiny-image")
FOREIGN = ("llama",)
JINJA = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}{% if a is defined %}<|a|>{% endif %}"
GENERATION = {
    "num_beams": 2, "length_penalty": 0.5, "do_sample": False, "temperature": 0.7, "top_k": 50, "top_p": 0.9,
    "repetition_penalty": 1.1, "bad_words_ids": [[5], [6, 7]], "max_new_tokens": 20, "eos_token_id": [1],
    "forced_eos_token_id": 1, "suppress_tokens": [8], "no_repeat_ngram_size": 3, "max_length": 40,
}  # fmt: skip


def look(directory):
    """Why a checkpoint is refused, or nothing."""
    try:
        check(Path(directory), ExportOptions(), 4, None)
    except ExportError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Where each checkpoint lies, by its name."""
    import hf_models
    from decoder_kinds import DECODERS
    from encoder_kinds import CLASSIFIERS, TAGGERS
    from seq2seq_kinds import SEQ2SEQ
    from tiny import CHECKPOINTS

    from weft_export.checkpoints.directory import save_checkpoint

    made = {}
    for name in CHECKPOINTS if FACTOR else OWN:
        made[name] = tmp_path_factory.mktemp(name)
        save_checkpoint(made[name], CHECKPOINTS[name]())
    for kind in (*DECODERS, *CLASSIFIERS, *TAGGERS, *SEQ2SEQ):
        if FACTOR or kind.name in FOREIGN:
            made[kind.name] = tmp_path_factory.mktemp(kind.name)
            hf_models.made(kind, 1, made[kind.name])
    return made


@pytest.fixture(scope="module")
def looking():
    """`look` in a process of its own."""
    with Bounded(__file__, "look") as call:
        yield call


def try_with(looking, directory, name, content):
    """Look at a checkpoint one of whose files has another content: one line or a few, and never for who debugs us."""
    path = directory / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        said = looking(str(directory))
    finally:
        path.unlink() if before is None else path.write_bytes(before)
    event("refused" if said else "taken")
    assert len(said.splitlines()) <= 3
    assert "This is a bug" not in said


def drawn(data, checkpoints):
    """One of the checkpoints."""
    return checkpoints[data.draw(st.sampled_from(sorted(checkpoints)))]


def of(data, directory, name):
    """A file of a checkpoint with other values."""
    document = json.loads((directory / name).read_bytes())
    return json.dumps(data.draw(mutated_json([document]))).encode()


@budget(12)
@given(data=st.data())
def test_any_config(checkpoints, looking, data):
    """Values of config.json, changed."""
    directory = drawn(data, checkpoints)
    try_with(looking, directory, "config.json", of(data, directory, "config.json"))


@budget(15)
@given(data=st.data())
def test_any_tokenizer(checkpoints, looking, data):
    """Values of a tokenizer's file, changed."""
    directory = drawn(data, checkpoints)
    names = sorted(path.name for path in directory.glob("*.json") if path.name not in {"config.json", "held_out.jsonl"})
    if names:
        name = data.draw(st.sampled_from(names))
        try_with(looking, directory, name, of(data, directory, name))


@budget(12)
@given(data=st.data(), generation=mutated_json([GENERATION]))
def test_any_generation_config(checkpoints, looking, data, generation):
    """Values of generation_config.json, changed."""
    try_with(looking, drawn(data, checkpoints), "generation_config.json", json.dumps(generation).encode())


@budget(15)
@given(data=st.data(), template=mutated_bytes([JINJA.encode()]))
def test_any_template(checkpoints, looking, data, template):
    """Signs of a chat's template, changed."""
    try_with(looking, drawn(data, checkpoints), "chat_template.jinja", template)


@budget(20)
@given(data=st.data())
def test_any_header_of_weights(checkpoints, looking, data):
    """The header of model.safetensors: its length, its JSON, or its bytes."""
    directory = drawn(data, checkpoints)
    content = (directory / "model.safetensors").read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header, weights = content[8 : 8 + length], content[8 + length :]
    if data.draw(st.booleans()):
        header = json.dumps(data.draw(mutated_json([json.loads(header)], most=2))).encode()
        length = data.draw(st.sampled_from([len(header), len(header), len(header), 0, 2**63, 2**64 - 1]))
        content = struct.pack("<Q", length) + header + weights
    else:
        content = data.draw(mutated_bytes([content[: 8 + length]])) + weights
    try_with(looking, directory, "model.safetensors", content)
