"""Writes docs/api.md from the docstrings and signatures of `weft`: `python tests/client/api_page.py`."""

import ast
import enum
import inspect
import re
import textwrap
from functools import cache
from itertools import pairwise
from pathlib import Path

import weft
from weft import _decoding, _types, plot
from weft._verbs import options

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
HEAD = """\
# The API of `weft`

Every public name of the client, with what its docstring says. [The client's page](../client/README.md) shows how to use
it.
This page is made by `python tests/client/api_page.py`, and a test holds it to the code.

Everything below is in the module `weft`; the section on pictures is in `weft.plot`.
"""
GROUPS = {
    "Clients": [
        "Client", "AsyncClient", "AdminClient", "AsyncAdminClient", "Stream", "AsyncStream", "Many", "AsyncMany",
    ],
    "What goes in": [
        "Text", "Messages", "Picture", "PictureFile", "Recording", "Options", "WritingOptions",
        "TranslateOptions", "CaptionOptions",
        "AnswerOptions", "TranscribeOptions", "GenerateOptions", "ClassifyOptions", "TagOptions",
        "ExtractOptions", "FillMaskOptions", "EmbedOptions",
        "ScoreOptions", "TokenizeOptions", "DetokenizeOptions", "Decoding", "Phrase", "Greedy",
        "Sampling", "Beams", "EarlyStopping", "Alternatives", "PhraseBias", "LengthDecay", "Explain", "Function",
    ],
    "What comes out": [
        "Completion", "Translation", "Caption", "Answer", "Transcription", "Segment", "Word", "Generation", "Output",
        "FunctionCall", "TopToken", "Classification",
        "LabelScore", "Tagging", "TokenLabel",
        "Span", "Extraction", "ExtractedAnswer", "FilledMasks", "FilledMask", "Filling",
        "Embeddings", "Score", "TokenMatch", "Tokenization", "Token", "Detokenization",
        "Alignment", "PictureColumns", "Usage", "Timings", "ResolvedModel", "FinishReason", "Model", "Limits", "Task",
        "Prompt", "QuestionForm", "TruncationSide", "VectorKind",
        "LabelScoring",
        "ModelState", "Health",
    ],
    "What goes wrong": [
        "Error", "InvalidRequest", "NotFound", "FailedPrecondition", "Unsupported", "AccessDenied", "Overloaded",
        "Unavailable", "DeadlineExceeded", "Cancelled", "InternalError", "FieldViolation",
    ],
}  # fmt: skip
# Names of types without a class, and where they stand.
ALIASES = {"Text": _types, "Messages": _types, "PictureFile": _types, "Recording": _types, "Phrase": _decoding}


def page():
    """Return the whole page."""
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *(_entry(name) for name in names)]
    parts += ["## Pictures\n", _function("plot_alignment", plot.plot_alignment, "###"), ""]
    return "\n".join(parts)


def _entry(name):
    if name in ALIASES:
        return _alias(name, ALIASES[name])
    kind = getattr(weft, name, None) or getattr(options, name)
    parts = [f"### `{name}`", _prose(kind.__doc__)]
    node = _classes()[name]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in _NAMES]
    if bases:
        parts.append(f"Base: `{bases[0]}`.")
    if issubclass(kind, enum.Enum):
        parts.append(_wrap("One of " + ", ".join(f'`"{each.value}"`' for each in kind) + "."))
    elif not is_error(kind):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        parts.append("\n".join(f"- `{ast.unparse(each)}`" for each in fields))
    if name in {"Client", "AdminClient"}:
        parts += [_code(name, kind.__init__), _prose(kind.__init__.__doc__)]
    if name == "AsyncClient":
        parts.append(
            _wrap(
                "Made as `Client` is, with its methods: awaited, but for `stream_*`, which give an `AsyncStream`, and "
                "`*_many`, which give an `AsyncMany` and take async iterables too."
            )
        )
    elif name == "AsyncAdminClient":
        parts.append(_wrap("Made as `AdminClient` is, with its methods, awaited."))
    else:
        parts += _methods(kind)
    return "\n\n".join(filter(None, parts)) + "\n"


def is_error(kind):
    """Whether it is an exception."""
    return issubclass(kind, Exception)


_NAMES = [name for names in GROUPS.values() for name in names]


@cache
def _classes():
    """Return each class of the client as it stands in its file, which its `__module__` does not name."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "client" / "weft").rglob("*.py")]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _parsed(function):
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


def _alias(name, module):
    """Return a type alias with the string that stands under it in the source."""
    body = ast.parse(inspect.getsource(module)).body
    for node, doc in pairwise(body):
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return f"### `{name}`\n\n`{ast.unparse(node.value)}`\n\n{_prose(doc.value.value)}\n"
    raise AssertionError(name)


def _methods(kind):
    found = {}
    for base in reversed(kind.__mro__[:-1]):
        # What an admin's client takes over from a client stands there.
        if base.__module__.startswith("weft") and not (kind is weft.AdminClient and base is weft.Client):
            found |= {name: member for name, member in vars(base).items() if not name.startswith("_")}
    return [
        _function(name, member, "####")
        for name, member in found.items()
        if inspect.isfunction(member) or isinstance(member, property)
    ]


def _function(name, member, level):
    if isinstance(member, property):
        return f"{level} `{name}`\n\n{_prose(member.__doc__)}"
    return f"{level} `{name}`\n\n{_code(name, member)}\n\n{_prose(member.__doc__)}"


def _code(name, function):
    """Return a signature as a block of code, an argument on each line where they are many."""
    node = _parsed(function)
    node.args.args = [each for each in node.args.args if each.arg != "self"]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and name == node.name else ""
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    arguments = ast.unparse(node.args)
    line = f"{start}{name}({arguments}){returns}"
    if len(line) > 100:
        parts = re.split(r", (?![^\[]*\])", arguments)
        line = f"{start}{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"
    return f"```python\n{line}\n```"


def _prose(doc):
    """Return a docstring as Markdown: a list where it has Args, Returns, Raises or Attributes."""
    lines = []
    for block in inspect.cleandoc(doc).split("\n\n"):
        if block.startswith("- "):
            lines.append("\n".join(_wrap(item, "  ") for item in re.split(r"\n(?=- )", block)))
            continue
        title, _, rest = block.partition("\n")
        if title.rstrip(":") not in {"Args", "Returns", "Raises", "Attributes"}:
            lines.append(_wrap(block))
            continue
        items = re.split(r"\n(?=\S)", textwrap.dedent(rest))
        if title == "Returns:":
            lines.append(_wrap(f"Returns: {' '.join(rest.split())}"))
            continue
        split = [" ".join(item.split()).partition(": ") for item in items]
        lines.append(f"{title}\n\n" + "\n".join(_wrap(f"- `{name}`: {said}", "  ") for name, _, said in split))
    return "\n\n".join(lines)


def _wrap(text, indent=""):
    return textwrap.fill(
        " ".join(text.split()), 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
