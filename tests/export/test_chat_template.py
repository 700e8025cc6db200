"""A checkpoint's chat template is read with it, and refused when no server could use it."""

from dataclasses import replace

import pytest
from tiny import CHECKPOINTS

from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_TEMPLATE_BYTES
from weft_proto.v1 import bundle_pb2


def with_template(content, name="tiny-generate", **chat):
    """The tiny generator with another template."""
    checkpoint = CHECKPOINTS[name]()
    text = bundle_pb2.TextSpec()
    text.CopyFrom(checkpoint.text)
    text.chat.CopyFrom(bundle_pb2.ChatSpec(**({"template": "chat.jinja"} | chat)))
    return replace(checkpoint, text=text, files={**checkpoint.files, "chat.jinja": content})


def test_a_template_is_read_with_its_checkpoint(tmp_path):
    """As it was saved, with the tags that transformers' templates have."""
    content = "{% for m in messages %}{% generation %}é{% endgeneration %}{% break %}{% endfor %}".encode()
    save_checkpoint(tmp_path, with_template(content, bos_token="<s>"))
    loaded = load_checkpoint(tmp_path)
    assert content == loaded.files["chat.jinja"]
    assert ("chat.jinja", "<s>") == (loaded.text.chat.template, loaded.text.chat.bos_token)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff", "chat.jinja is not UTF-8: invalid start byte at byte 0"),
        (b"{{", "chat.jinja is not a Jinja template: unexpected 'end of template'"),
        (b"{% for %}", "chat.jinja is not a Jinja template"),
        (b"x" * (MAX_TEMPLATE_BYTES + 1), "chat.jinja has 65537 bytes; a chat's template has at most 65536"),
        (b"{{ " + b"(" * 30_000, "chat.jinja cannot be read as a Jinja template: maximum recursion depth exceeded"),
    ],
)
def test_what_is_no_template_is_refused(content, complaint):
    """Before any work is done."""
    with pytest.raises(CheckpointError) as refused:
        with_template(content)
    assert complaint in str(refused.value)


def test_the_largest_template_is_taken():
    """64 KiB of it."""
    assert with_template(b"x" * MAX_TEMPLATE_BYTES)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"template": ""}, "text.chat.template is missing"),
        ({"template": "other.jinja"}, "the file other.jinja is missing"),
        ({"eos_token": "x" * 257}, "text.chat.eos_token has 257 characters; at most 256 are allowed"),
    ],
)
def test_a_chat_that_does_not_fit_is_refused(change, complaint):
    """It names a file that is there, and short tokens."""
    with pytest.raises(CheckpointError) as refused:
        with_template(b"a", **change)
    assert complaint == str(refused.value)


def test_only_a_generator_takes_messages():
    """A translator has no chat."""
    with pytest.raises(CheckpointError) as refused:
        with_template(b"a", name="tiny-translate")
    assert "text.chat is for generate only" == str(refused.value)
