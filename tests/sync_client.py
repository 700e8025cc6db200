"""Writes `client/weft/_sync/`, the clients that block, of those in `_async/`: `make sync`."""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "client" / "weft"
# In this order.
RULES = [
    (r" \| AsyncIterable\[(?:[^][]|\[[^][]*\])*\]", ""),
    (r"\(StopIteration, StopAsyncIteration\)", "StopIteration"),
    (r"Awaitable\[(\w+)\]", r"\1"),
    (r"\bawait ", ""),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"grpc\.aio\.(?!EOF)", "grpc."),
    (r"\b_async\b", "_sync"),
    (r"an async context", "a context"),
    (r"\b(Stop)?(?:Async|Loop)(?=[A-Z])", r"\1"),
]
# What a class says that is not its like's with other words.
DOCS = {
    "Client": """\
Talks to Weft servers. Threads may share one; it connects at the first call, and again when a connection is lost.

    Every verb takes `timeout`, in seconds, and raises only what stands under `weft.Error`.
    """,
    "AdminClient": """\
Talks to the admin port of one server (`weft serve --admin`), which answers no requests to models.

    A change that has begun goes on when the call is given up. The same call made again waits for it.
    """,
    "Many": """\
Gives an answer, or a `weft.Error` in its place, for each input, in the order of the inputs.

    Inputs are read as they are needed, at most a few times `concurrency` before the answer that is taken; so they may
    be without end. They are read, and calls begin, while the next answer is waited for: who takes no answer asks for
    nothing more. A full server is waited for, as long as it says, up to `timeout` for each input; so is one that went
    away, once it has answered. As a context manager, or left behind half-read, it cancels what is in flight. One
    thread reads it.
    """,
}


def pages():
    """Return each file of `_sync/` with its text."""
    return {CLIENT / "_sync" / path.name: blocking(path) for path in sorted((CLIENT / "_async").glob("[a-z]*.py"))}


def blocking(path):
    """Return a file's text for threads that block."""
    text = path.read_text("utf-8")
    for pattern, plain in RULES:
        text = re.sub(pattern, plain, text)
    for name, doc in DOCS.items():
        said = re.compile(rf'(class {name}\([^\n]*\):\n    """).*?(?=""")', re.DOTALL)
        text = said.sub(lambda found, doc=doc: found[1] + doc, text)
    text = f"# Made of _async/{path.name} by `make sync`: change that one.\n{text}"
    for command in (["check", "--fix", "--select", "I,F401"], ["format"]):
        name = CLIENT / "_sync" / path.name
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", name, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, "utf-8")
