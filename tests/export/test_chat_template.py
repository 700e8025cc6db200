"""A chat's template is the one that transformers takes."""

import pytest
from tiny import save_tiny
from tokenizer_directories import byte_level, config_of, reference, write

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_TEMPLATE_BYTES
from weft_proto.chat.meter import Meter
from weft_proto.chat.prompt import PromptTemplate

ONE = "{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"
OTHER = "{{ bos_token }}other"
NAMES = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
OTHER_NAMES = {"sep_token": "<sep>", "cls_token": "<cls>", "mask_token": "<m>", "pad_token": "<p>", "unk_token": "<u>"}
NAMED = [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": ONE}]
PLACES = {
    "config": ({"chat_template": ONE}, {}),
    "named": ({"chat_template": NAMED}, {}),
    "a file": ({}, {"chat_template.jinja": ONE}),
    "a file before config": ({"chat_template": OTHER}, {"chat_template.jinja": ONE}),
    "a file of Windows": ({}, {"chat_template.jinja": ONE.replace("{% endfor", "\r\n{% endfor")}),
    "all names": ({"chat_template": ONE, **OTHER_NAMES}, {}),
    "none": ({}, {}),
    "named otherwise": ({"chat_template": NAMED[:1]}, {}),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_template_is_the_one_that_transformers_takes(tmp_path, place):
    """From tokenizer_config.json or a file of its own, the default one of several; with the names of special tokens."""
    options, files = PLACES[place]
    write(tmp_path, "falcon", NAMES | options, {"tokenizer.json": byte_level(), **files})
    tokenizer = reference(tmp_path)
    side = read_text_side(tmp_path, config_of(tmp_path), 900)
    expected = tokenizer.chat_template
    if isinstance(expected, dict):
        expected = expected.get("default")
    if expected is None:
        assert side.chat is None
        assert {"tokenizer.json"} == set(side.files)
        return
    assert expected == side.files[side.chat.template].decode()
    names = tokenizer.special_tokens_map
    assert names == {field.name: value for field, value in side.chat.ListFields() if field.name != "template"}


def test_a_processor_s_template_is_the_last_resort(tmp_path):
    """chat_template.json, which models of pictures have, counts where no other file has a template."""
    files = {"tokenizer.json": byte_level(), "chat_template.json": {"chat_template": ONE}}
    write(tmp_path, "falcon", NAMES, files)
    side = read_text_side(tmp_path, config_of(tmp_path), 900)
    assert ONE == side.files[side.chat.template].decode()


UNFIT = {
    "no Jinja": ("{{", "chat_template.jinja is no template that a chat can use: unexpected 'end of template'"),
    "another file": ("{% include 'a' %}", "what a chat's template may not have: include"),
    "no such filter": ("{{ 1 | wordwrap }}", "No filter named 'wordwrap'"),
    "a failure": ("{{ 1 + 'a' }}", "unsupported operand type"),
    "a refusal": ("{{ raise_exception('a chat begins with the system') }}", "a chat begins with the system"),
    "no end": ("{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "it makes over 4,194,304 characters"),
    "too long": ("x" * (MAX_TEMPLATE_BYTES + 1), "65537 bytes; a chat's template has at most 65536"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_template_that_no_server_takes_is_left_out(tmp_path, name):
    """A note says why, and that the model takes no messages. The rest of the directory is exported."""
    template, why = UNFIT[name]
    write(tmp_path, "falcon", NAMES | {"chat_template": template}, {"tokenizer.json": byte_level()})
    side = read_text_side(tmp_path, config_of(tmp_path), 900)

    assert (None, {"tokenizer.json"}) == (side.chat, set(side.files))
    (note,) = side.notes
    assert note.startswith("the chat template is left out, so no request can have messages: ")
    assert why in note


def test_a_checkpoint_of_ours_must_have_one_that_works(tmp_path):
    """Nobody but us wrote it, so it is not left out: the checkpoint is refused."""
    save_tiny("tiny-generate", tmp_path)
    (tmp_path / "chat_template.jinja").write_text(UNFIT["a refusal"][0])

    with pytest.raises(CheckpointError, match="a chat begins with the system"):
        load_checkpoint(tmp_path, filled=False)


def test_a_template_finds_every_named_token_of_its_tokenizer(tmp_path):
    """Under its name, as transformers gives it. One that the tokenizer does not have is not defined."""
    template = "{{ messages[0].content }}" + "".join(f"{{{{ {name} }}}}" for name in (*NAMES, *OTHER_NAMES))
    for names in (NAMES, NAMES | OTHER_NAMES):
        write(tmp_path, "falcon", {**names, "chat_template": template}, {"tokenizer.json": byte_level()})
        side = read_text_side(tmp_path, config_of(tmp_path), 900)
        prompt = PromptTemplate(side.chat, side.files[side.chat.template])
        chat = [{"role": "user", "content": "Hi"}]
        assert reference(tmp_path).apply_chat_template(chat, tokenize=False) == prompt.render(chat, Meter())
