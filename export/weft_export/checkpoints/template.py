"""The template by which a chat becomes a prompt: one that no server takes makes no bundle."""

from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_TEMPLATE_BYTES
from weft_proto.chat.faults import NoTemplate
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.v1 import bundle_pb2


def check_template(spec: bundle_pb2.ChatSpec, content: bytes) -> None:
    """Raise CheckpointError unless a file is a template that a server reads, and that takes one plain message."""
    if len(content) > MAX_TEMPLATE_BYTES:
        size = f"has {len(content)} bytes; a chat's template has at most {MAX_TEMPLATE_BYTES}"
        raise CheckpointError(f"{spec.template} {size}")
    try:
        PromptTemplate(spec, content)
    except NoTemplate as error:
        raise CheckpointError(str(error)) from error
