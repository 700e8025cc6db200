"""Prompts that no template of a directory writes to the end: Gemma 3 puts texts around pictures, others have none.

What their processors do in transformers is done by the template of the bundle.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer

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
# Any text will do, to see what stands around one.
_PROBE = "a"
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
_BLIP2 = """\
{%- if messages | length != 1 or messages[0]['role'] != 'user' -%}
{{- raise_exception('one message of a user is taken: the model holds no conversation') -}}
{%- endif -%}
{%- set content = messages[0]['content'] -%}
{%- set said = namespace(picture='', text='') -%}
{%- for part in ([{'type': 'text', 'text': content}] if content is string else content) -%}
{%- if part['type'] != 'image' -%}
{%- set said.text = said.text ~ part['text'] -%}
{%- elif said.picture -%}
{{- raise_exception('one picture is taken') -}}
{%- else -%}
{%- set said.picture = IMAGE -%}
{%- endif -%}
{%- endfor -%}
{{- said.picture ~ BEFORE ~ said.text ~ BEHIND -}}
"""


def put_prompts(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> tuple[str, ...]:
    """Put into `text` and `files` how messages become a prompt, where no template says it all. Return notes.

    Raises:
        CheckpointError: a file is missing, or files contradict each other.
    """
    put = _PUT.get(hf.fields.word("model_type"))
    return () if put is None else put(text, hf, sight, files)


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
    _unframe(text, files)
    notes = ("the chat template is left out: a prompt of a PaliGemma has one form",) * text.HasField("chat")
    token = json.dumps(named_token(hf, "image_token", "<image>"))
    files[TEMPLATE_FILE] = _PALIGEMMA.replace("IMAGE", token).encode()
    text.chat.CopyFrom(bundle_pb2.ChatSpec(template=TEMPLATE_FILE, bos_token=bos))
    return notes


def _put_query(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: dict[str, bytes]) -> tuple[str, ...]:
    """BLIP-2: the picture is a prompt's beginning. Then comes a text as its tokenizer frames one."""
    given = read_object_if_there(hf.directory / PROCESSOR_FILE)
    if given.get("num_query_tokens") != sight.num_places:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: num_query_tokens is {given.get('num_query_tokens')!r:.60}, and config.json makes"
            f" {sight.num_places} places of a picture"
        )
    before, behind = framing(tokenizer_of(text.source_tokenizer, files[text.source_tokenizer]))
    _unframe(text, files)
    words = {"IMAGE": named_token(hf, "image_token", "<image>"), "BEFORE": before, "BEHIND": behind}
    template = _BLIP2
    for name, value in words.items():
        template = template.replace(name, json.dumps(value))
    notes = ("the chat template is left out: a prompt of a BLIP-2 has one form",) * text.HasField("chat")
    files[TEMPLATE_FILE] = template.encode()
    text.chat.CopyFrom(bundle_pb2.ChatSpec(template=TEMPLATE_FILE))
    return notes


def _unframe(text: bundle_pb2.TextSpec, files: dict[str, bytes]) -> None:
    """Let the tokenizer put nothing around a text: the template says all of a prompt."""
    name = text.source_tokenizer
    bare = json.loads(files[name]) | {"post_processor": None}
    files[name] = json.dumps(bare, ensure_ascii=False).encode()


def framing(tokenizer: Tokenizer) -> tuple[str, str]:
    """Return what a tokenizer puts before a text and behind it, as a template writes it."""
    bare, framed = (tokenizer.encode(_PROBE, add_special_tokens=each).ids for each in (False, True))
    count = next((each for each in range(len(framed)) if framed[each : each + len(bare)] == bare), None)
    if count is None:
        raise CheckpointError("the tokenizer changes a text that it puts tokens around")
    found = []
    for ids in (framed[:count], framed[count + len(bare) :]):
        spelled = "".join(str(tokenizer.id_to_token(each)) for each in ids)
        if tokenizer.encode(spelled, add_special_tokens=False).ids != ids:
            raise CheckpointError(f"the tokenizer puts {spelled!r:.60} around a text, and reads it as other tokens")
        found.append(spelled)
    return found[0], found[1]


def _check_count(where: str, count: object, sight: Any) -> None:
    if count != sight.num_places:
        raise CheckpointError(
            f"{where}: image_seq_length is {count!r:.60}, and config.json makes {sight.num_places} places of a picture"
        )


_PUT: Mapping[str, Callable[[bundle_pb2.TextSpec, HfCheckpoint, Any, dict[str, bytes]], tuple[str, ...]]] = {
    "blip-2": _put_query,
    "gemma3": _put_around,
    "paligemma": _put_whole,
}
