"""The template that makes a prompt of a chat's messages, wherever a directory keeps it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.specs import check_template
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.converters.text.settings import CONFIG, NAMES, Token, TokenizerSettings
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

TEMPLATE_FILE = "chat_template.jinja"
_OLDER = "chat_template.json"
# Of a processor, where they go before that file, in this order.
_OF_PROCESSOR = ("processor_config.json", _OLDER)
_KEY = "chat_template"


def read_chat(
    settings: TokenizerSettings, names: Mapping[str, Token | None], notes: list[str], *, by_processor: bool = False
) -> tuple[bytes, bundle_pb2.ChatSpec] | None:
    """Return a directory's chat template and what it finds under the names of special tokens, or None.

    A file of its own goes before tokenizer_config.json. Of several templates, it is the one named "default". One that
    no server takes is left out, and told in `notes`: the model does without chats.

    by_processor: a processor of transformers writes the prompt, which has an order of its own, and takes no template
    of tokenizer_config.json.

    Raises:
        CheckpointError: the template is no UTF-8, or of no known kind.
    """
    template = _of_processor(settings, notes) if by_processor else _of_tokenizer(settings)
    if template is None:
        return None
    spec = bundle_pb2.ChatSpec(template=TEMPLATE_FILE)
    for name in NAMES:
        setattr(spec, name, str(names.get(name) or ""))
    try:
        check_template(spec, template)
    except CheckpointError as error:
        notes.append(f"the chat template is left out, so no request can have messages: {error}")
        return None
    return template, spec


def _of_tokenizer(settings: TokenizerSettings) -> bytes | None:
    template = _of_its_own(settings.where)
    if template is not None:
        return template
    if (settings.where / "additional_chat_templates").is_dir():
        return None  # named ones alone: a request would have to choose
    template = _default(settings.options, settings.where / CONFIG)
    return _within(settings.where, _OLDER) if template is None else template


def _of_processor(settings: TokenizerSettings, notes: list[str]) -> bytes | None:
    for name in _OF_PROCESSOR:
        if (template := _within(settings.where, name)) is not None:
            return template
    template = _of_its_own(settings.where)
    if template is None and settings.options.get(_KEY):
        notes.append(f"the chat template of {CONFIG} is left out: the processor of such a model takes none from there")
    return template


def _of_its_own(directory: Path) -> bytes | None:
    path = directory / TEMPLATE_FILE
    if not path.exists():
        return None
    content = read_file(path)
    try:
        # As text files are read: one kind of line end.
        return content.decode().replace("\r\n", "\n").replace("\r", "\n").encode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error}") from error


def _within(directory: Path, name: str) -> bytes | None:
    return _default(read_object_if_there(directory / name), directory / name)


def _default(said: Mapping[str, Any], path: Path) -> bytes | None:
    """The one template that a file says, or of several by name the default one."""
    given = said.get(_KEY)
    if isinstance(given, list):
        given = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
    if isinstance(given, dict):
        given = given.get("default")
    if given is not None and not isinstance(given, str):
        raise CheckpointError(f"{path}: chat_template is neither a string nor a list of named templates")
    try:
        return None if given is None else given.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{path}: the chat template has half of a surrogate pair, which is no character"
        ) from error
