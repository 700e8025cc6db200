"""A chat's template is the one that transformers takes."""

import pytest
from tokenizer_directories import byte_level, config_of, reference, write

from weft_export.converters.text.side import read_text_side

ONE = "{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"
OTHER = "{{ bos_token }}other"
NAMES = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
NAMED = [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": ONE}]
PLACES = {
    "config": ({"chat_template": ONE}, {}),
    "named": ({"chat_template": NAMED}, {}),
    "a file": ({}, {"chat_template.jinja": ONE}),
    "a file before config": ({"chat_template": OTHER}, {"chat_template.jinja": ONE}),
    "a file of Windows": ({}, {"chat_template.jinja": ONE.replace("{% endfor", "\r\n{% endfor")}),
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
    names = [getattr(tokenizer, f"{name}_token") or "" for name in ("bos", "eos", "pad", "unk")]
    assert names == [side.chat.bos_token, side.chat.eos_token, side.chat.pad_token, side.chat.unk_token]


def test_a_processor_s_template_is_the_last_resort(tmp_path):
    """chat_template.json, which models of pictures have, counts where no other file has a template."""
    files = {"tokenizer.json": byte_level(), "chat_template.json": {"chat_template": ONE}}
    write(tmp_path, "falcon", NAMES, files)
    side = read_text_side(tmp_path, config_of(tmp_path), 900)
    assert ONE == side.files[side.chat.template].decode()
