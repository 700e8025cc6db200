"""The template by which a chat becomes a prompt. Here it is only read: a server renders it, and checks far more."""

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_TEMPLATE_BYTES


def check_template(name: str, content: bytes) -> None:
    """Raise CheckpointError unless a file is a Jinja template of a size that a server reads."""
    if len(content) > MAX_TEMPLATE_BYTES:
        raise CheckpointError(f"{name} has {len(content)} bytes; a chat's template has at most {MAX_TEMPLATE_BYTES}")
    try:
        # Parsing makes a tree and runs nothing.
        Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(content.decode())  # noqa: S701 - no HTML
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error
    except TemplateSyntaxError as error:
        raise CheckpointError(f"{name} is not a Jinja template: {error.message} (line {error.lineno})") from error
    except (RecursionError, ValueError) as error:
        raise CheckpointError(f"{name} cannot be read as a Jinja template: {error}") from error


class _Generation(Extension):
    """The tag with which transformers' templates mark what a model says."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Read up to `endgeneration`."""
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)
