"""A chat with pictures becomes the prompt that the processor of transformers writes, wherever its template lies."""

import json

import pytest
import transformers
from sight_kinds import SEEING, TEMPLATE, made_seeing

from weft_export.converters.convert import convert
from weft_export.options import ExportOptions
from weft_proto.chat.meter import Meter
from weft_proto.chat.prompt import PromptTemplate

JINJA, TOKENIZER = "chat_template.jinja", "tokenizer_config.json"
FOR_TEXTS = "{% for message in messages %}{{ message['role'] }}{% endfor %}"
MESSAGES = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]


def saved_with(directory, **templates):
    """Save a LLaVA with these templates alone, by the beginning of the name of the file that has one."""
    made_seeing(SEEING[0], 0, directory)
    (directory / JINJA).unlink()
    for name, template in templates.items():
        path = directory / f"{name}.json"
        said = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(said | {"chat_template": template}))


@pytest.mark.parametrize("name", ["chat_template", "processor_config"])
@pytest.mark.parametrize("beside", [None, FOR_TEXTS], ids=["alone", "beside-jinja"])
def test_a_template_is_taken_in_the_order_of_the_processor(name, beside, tmp_path):
    """tokenizer_config.json, which may have one for texts alone, is none of its places; chat_template.jinja is last."""
    saved_with(tmp_path, tokenizer_config=FOR_TEXTS, **{name: TEMPLATE})
    if beside is not None:
        (tmp_path / JINJA).write_text(beside)
    expected = transformers.AutoProcessor.from_pretrained(tmp_path).apply_chat_template(
        MESSAGES, add_generation_prompt=True
    )
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    template = PromptTemplate(checkpoint.text.chat, checkpoint.files[checkpoint.text.chat.template])
    assert "<image>" in expected
    assert expected == template.render(MESSAGES, Meter())


def test_without_one_there_are_no_chats(tmp_path):
    """The processor refuses them then, and a note says which template was left out."""
    saved_with(tmp_path, tokenizer_config=TEMPLATE)
    with pytest.raises(ValueError, match="does not have a chat template"):
        transformers.AutoProcessor.from_pretrained(tmp_path).apply_chat_template(MESSAGES)
    made = convert(tmp_path, ExportOptions(), filled=False)
    assert not made.checkpoint.text.HasField("chat")
    assert any(TOKENIZER in note and "left out" in note for note in made.notes)
