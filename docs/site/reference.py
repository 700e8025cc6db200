"""Pages of the site that the code writes of itself: the command, the calls by gRPC, and those by HTTP."""

import json
import re
import tempfile
from pathlib import Path

import typer
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from typer.cli import get_docs_for_click

from weft_command.plugins import PLUGINS, loaded
from weft_command.running import command_of
from weft_proto.v1.methods import SERVICES
from weft_server.api.connect_protocol import connect_routes
from weft_server.api.docs_routes import document_of, with_docs
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api.routes import openai_routes, refuse_path

ROOT = Path(__file__).resolve().parents[2]
PROTOS = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto/weft_proto/v1").glob("*.proto"))
LABELS = {descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED: "repeated "}
TYPES = descriptor_pb2.FieldDescriptorProto.Type


def commands():
    """Return what each `weft ... --help` says."""
    command = command_of(["--help"])
    command.commands |= {name: loaded(name) for name in PLUGINS}
    context = typer.Context(command, info_name="weft")
    return get_docs_for_click(obj=command, ctx=context, name="weft", title="The command `weft`")


def rpcs():
    """Return the services and messages of weft.v1, with the comments of their files."""
    parts = ["# Calls by gRPC\n\nThe package is `weft.v1`. Each part is one file of `proto/weft_proto/v1`.\n"]
    for file in _described():
        parts.append(f"## {Path(file.name).stem}\n")
        says = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        parts += [_service(service, (6, index), says) for index, service in enumerate(file.service)]
        parts += [_message(message, (4, index), says) for index, message in enumerate(file.message_type)]
        parts += [_enum(enum, (5, index), says) for index, enum in enumerate(file.enum_type)]
    return "\n".join(parts)


def _described():
    """Return the descriptor of each file, with its comments. https://protobuf.com/docs/descriptors"""
    with tempfile.NamedTemporaryFile() as out:
        names = [str(path) for path in PROTOS]
        well_known = Path(protoc.__file__).with_name("_proto")
        asked = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", "--include_source_info", f"-o{out.name}", *names]
        if protoc.main(asked):
            raise SystemExit("protoc refuses the protos")
        return descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes()).file


def _line(text):
    """Return a comment as one line of a table or list."""
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")


def _service(service, path, says):
    lines = [f"### {service.name}\n", says.get(path, ""), "", "| Method | Takes | Answers | |", "|---|---|---|---|"]
    for index, method in enumerate(service.method):
        takes, answers = (name.rsplit(".", 1)[-1] for name in (method.input_type, method.output_type))
        answers = f"stream of `{answers}`" if method.server_streaming else f"`{answers}`"
        lines.append(f"| `{method.name}` | `{takes}` | {answers} | {_line(says.get((*path, 2, index), ''))} |")
    return "\n".join([*lines, ""])


def _message(message, path, says):
    lines = [f"### {message.name}\n", says.get(path, ""), ""]
    if message.field:
        lines += ["| Field | Type | |", "|---|---|---|"]
    for index, field in enumerate(message.field):
        lines.append(f"| `{field.name}` | {_type(field)} | {_line(says.get((*path, 2, index), ''))} |")
    lines.append("")
    lines += [_message(inner, (*path, 3, index), says) for index, inner in enumerate(message.nested_type)]
    lines += [_enum(inner, (*path, 4, index), says) for index, inner in enumerate(message.enum_type)]
    return "\n".join(lines)


def _type(field):
    name = field.type_name.removeprefix(".").removeprefix("weft.v1.") or TYPES.Name(field.type)[5:].lower()
    return f"{LABELS.get(field.label, '')}`{name}`"


def _enum(enum, path, says):
    lines = [f"### {enum.name}\n", says.get(path, ""), "", "| Value | |", "|---|---|"]
    lines += [
        f"| `{value.name}` | {_line(says.get((*path, 2, index), ''))} |" for index, value in enumerate(enum.value)
    ]
    return "\n".join([*lines, ""])


def openapi():
    """Return the document that a server answers at /openapi.json."""
    routes = (*connect_routes(SERVICES, 1 << 20), *openai_routes(ModelRegistry([]), 1 << 20))
    return document_of(with_docs(routes, refuse_path)).decode()


def http():
    """Return a list of the calls by HTTP: what the document says at length."""
    document = json.loads(openapi())
    lines = ["# Calls by HTTP\n", "[openapi.json](openapi.json) says each field. A server shows it at `/docs`.\n"]
    for group in document["tags"]:
        lines += [f"## {group['name']}\n", f"{group['description']}\n", "| Call | |", "|---|---|"]
        for path, methods in document["paths"].items():
            lines += [
                f"| `{method.upper()} {path}` | {_line(said['summary'])} |"
                for method, said in methods.items()
                if group["name"] in said["tags"]
            ]
        lines.append("")
    return "\n".join(lines)


REFERENCE = {"commands.md": commands, "rpcs.md": rpcs, "http.md": http, "openapi.json": openapi}
