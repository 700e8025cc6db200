"""The template that makes a prompt of a chat's messages, wherever a directory keeps it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.specs import check_template
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.converters.text.settings import NAMES, Token, TokenizerSettings
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

TEMPLATE_FILE = "chat_template.jinja"


def read_chat(
    settings: TokenizerSettings, names: Mapping[str, Token | None], notes: list[str]
) -> tuple[bytes, bundle_pb2.ChatSpec] | None:
    """Return a directory's chat template and what it finds under the names of special tokens, or None.

    A file of its own goes before tokenizer_config.json. Of several templates, it is the one named "default". One that
    no server takes is left out, and told in `notes`: the model does without chats.

    Raises:
        CheckpointError: the template is no UTF-8, or of no known kind.
    """
    template = _template(settings)
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


def _template(settings: TokenizerSettings) -> bytes | None:
    path = settings.where / TEMPLATE_FILE
    if path.exists():
        content = read_file(path)
        try:
            # As text files are read: one kind of line end.
            return content.decode().replace("\r\n", "\n").replace("\r", "\n").encode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} is not UTF-8: {error}") from error
    if (settings.where / "additional_chat_templates").is_dir():
        return None  # named ones alone: a request would have to choose
    template = _default(settings.options.get("chat_template"), settings)
    if template is None:
        template = _default(_of_processor(settings.where), settings)
    try:
        return None if template is None else template.encode()
    except UnicodeEncodeError as error:
        raise settings.wrong("the chat template has half of a surrogate pair, which is no character") from error


def _of_processor(directory: Path) -> Any:
    return read_object_if_there(directory / "chat_template.json").get("chat_template")


def _default(given: Any, settings: TokenizerSettings) -> str | None:
    """The one template, or of several by name the default one."""
    if isinstance(given, list):
        given = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
    if isinstance(given, dict):
        given = given.get("default")
    if given is not None and not isinstance(given, str):
        raise settings.wrong("chat_template is neither a string nor a list of named templates")
    return given
