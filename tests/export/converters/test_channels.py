"""A gpt-oss answers in channels: their marks stay in the text of an answer, and nothing else changes."""

from dataclasses import replace

import pytest
from hf_models import made
from mixture_kinds import MIXTURES
from tiny_parts import byte_tokenizer
from tokenizers import AddedToken, Tokenizer

from chat_templates import CHATML, HARMONY
from weft_export.converters.channels import MARKS, NOTE
from weft_export.converters.convert import convert
from weft_export.options import ExportOptions

GPT_OSS = next(each for each in MIXTURES if each.name == "gpt_oss")
SPECIAL = [*sorted(MARKS), "<|return|>"]


@pytest.mark.parametrize(("template", "kept"), [(HARMONY, True), (CHATML, False)], ids=["harmony", "chatml"])
def test_marks_stay_where_a_template_has_channels(template, kept, tmp_path):
    """The end of an answer does not, and a prompt has the same tokens. A note says so."""
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in SPECIAL])
    size = {"vocab_size": tokenizer.get_vocab_size()}
    made(replace(GPT_OSS, draw=lambda rng: GPT_OSS.draw(rng) | size), 0, tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(template)
    loaded = convert(tmp_path, ExportOptions(), filled=False)
    own = Tokenizer.from_buffer(loaded.checkpoint.files[loaded.checkpoint.text.target_tokenizer])
    text = "<|channel|>analysis<|message|>So<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>"
    ids = tokenizer.encode(text).ids
    assert ids == own.encode(text).ids
    without = "analysisSoassistantfinalYes"
    assert (text.removesuffix("<|return|>") if kept else without) == own.decode(ids)
    assert kept == (NOTE in loaded.notes)
