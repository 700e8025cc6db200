"""Prompts that no template of a directory writes to the end: Gemma 3 puts texts around pictures, PaliGemma has none.

What their processors do in transformers is done by the template of the bundle.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.processor_keys import PROCESSOR_FILE, read_processor
from weft_export.converters.text.chat import TEMPLATE_FILE
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

_TOKENIZER_CONFIG = "tokenizer_config.json"
# Of Gemma3Processor.
_SEQ_LENGTH = 256
# The first and the last of those that PaliGemmaProcessor adds to a tokenizer.
_ADDED = ("<loc0000>", "<seg127>")
# Whatever a template writes, the beginning of a picture becomes what a model reads there.
_AROUND = """\
{% set weft_prompt %}
TEMPLATE{{ '' }}{% endset %}{{ weft_prompt | replace(BEGINS, WHOLE) }}"""
_PALIGEMMA = """\
{%- if messages | length != 1 or messages[0]['role'] != 'user' -%}
{{- raise_exception('one message of a user is taken: the model holds no conversation') -}}
{%- endif -%}
{%- set content = messages[0]['content'] -%}
{%- set said = namespace(before='', behind='') -%}
{%- for part in ([{'type': 'text', 'text': content}] if content is string else content) -%}
{%- if part['type'] == 'image' -%}
{%- set said.before = said.before ~ said.behind ~ IMAGE -%}
{%- set said.behind = '' -%}
{%- else -%}
{%- set said.behind = said.behind ~ part['text'] -%}
{%- endif -%}
{%- endfor -%}
{{- said.before ~ bos_token ~ said.behind ~ '\\n' -}}
"""


def put_prompts(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> tuple[str, ...]:
    """Put into `text` and `files` how messages become a prompt. Return notes.

    Raises:
        CheckpointError: a file is missing, or files contradict each other.
    """
    return _PUT[hf.fields.word("model_type")](text, hf, sight, files)


def named_token(hf: HfCheckpoint, name: str, usual: str) -> str:
    """Return a token of the tokenizer by its name, or the usual one where its files name none."""
    config = read_object_if_there(hf.directory / _TOKENIZER_CONFIG)
    own = (config.get(key) for key in ("extra_special_tokens", "model_specific_special_tokens"))
    for place in (config, *own):
        said = place.get(name) if isinstance(place, dict) else None
        said = said.get("content") if isinstance(said, dict) else said
        if isinstance(said, str):
            return said
    return usual


def _put_around(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> tuple[str, ...]:
    """Gemma 3: the template writes what begins a picture. Its places stand behind that, and ends of lines around."""
    given = read_object_if_there(hf.directory / PROCESSOR_FILE)
    _check_count(PROCESSOR_FILE, given.get("image_seq_length", _SEQ_LENGTH), sight)
    if text.HasField("chat"):
        begins, ends = (
            named_token(hf, name, usual)
            for name, usual in (("boi_token", "<start_of_image>"), ("eoi_token", "<end_of_image>"))
        )
        place = named_token(hf, "image_token", "<image_soft_token>")
        around = _AROUND.replace("BEGINS", json.dumps(begins))
        around = around.replace("WHOLE", json.dumps(f"\n\n{begins}{place}{ends}\n\n"))
        source = files[text.chat.template].decode().removesuffix("\n")
        files[text.chat.template] = around.replace("TEMPLATE", source).encode()
    return ()


def _put_whole(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> tuple[str, ...]:
    """PaliGemma: pictures, the first token of a text, the text and the end of a line are a prompt."""
    where, given = read_processor(hf, "image_processor")
    _check_count(where, given.get("image_seq_length"), sight)
    name = text.source_tokenizer
    tokenizer = tokenizer_of(name, files[name])
    for each in _ADDED:
        if tokenizer.token_to_id(each) is None:
            raise CheckpointError(f"the tokenizer has no {each}, which PaliGemmaProcessor would add")
    bos = named_token(hf, "bos_token", "<bos>")
    if tokenizer.token_to_id(bos) is None:
        raise CheckpointError(f"the tokenizer has no {bos}, which begins the text of a prompt")
    # The processor lets the tokenizer put nothing around a text.
    bare = json.loads(files[name]) | {"post_processor": None}
    files[name] = json.dumps(bare, ensure_ascii=False).encode()
    notes = ("the chat template is left out: a prompt of a PaliGemma has one form",) * text.HasField("chat")
    token = json.dumps(named_token(hf, "image_token", "<image>"))
    files[TEMPLATE_FILE] = _PALIGEMMA.replace("IMAGE", token).encode()
    text.chat.CopyFrom(bundle_pb2.ChatSpec(template=TEMPLATE_FILE, bos_token=bos))
    return notes


def _check_count(where: str, count: object, sight: Any) -> None:
    if count != sight.num_places:
        raise CheckpointError(
            f"{where}: image_seq_length is {count!r:.60}, and config.json makes {sight.num_places} places of a picture"
        )


_PUT: Mapping[str, Callable[[bundle_pb2.TextSpec, HfCheckpoint, Any, dict[str, bytes]], tuple[str, ...]]] = {
    "gemma3": _put_around,
    "paligemma": _put_whole,
}
