"""Writes the table of docs/benchmarks/README.md from the heads of the files: `python tests/benchmarks_page.py`."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs/benchmarks"
PAGE = FOLDER / "README.md"
# For the record only: a later file answers the same question.
OLDER = {
    "peers_2xcpu-amd-epyc-avx512_2026-11-21.md",
    "peers_2xcpu-amd-epyc-avx512_2026-11-21-night.md",
    "peers_2xcpu-amd-epyc-avx512_2026-11-21-late.md",
    "peers_2xcpu-amd-epyc-avx512_2026-11-22.md",
    "smoke_2xcpu-amd-epyc-avx512_2026-11-20.md",
    "smoke_2xcpu-amd-epyc-avx512_2026-11-20-evening.md",
}
# What other pages, or parts of a file, answer: question, link and day.
ELSEWHERE = (
    (
        "At translation with 4 beams, how does Weft compare with CTranslate2?",
        "[the log of speed](../log-of-speed.md#2026-11-23-beams-over-ctranslate2-and-greedy-beside-what-it-was)",
        "2026-11-23",
    ),
    (
        "How fast is a lone int8 answer with and without drafts?",
        "[exact speculation](../decisions/exact-speculation.md#measured)",
        "2026-11-26",
    ),
    (
        "What do the engine and the server add to a bare loop, with the peers' workloads?",
        "the last lines of [peers, afternoon](peers_2xcpu-amd-epyc-avx512_2026-11-22-afternoon.md)",
        "2026-11-22",
    ),
)
_NAME = re.compile(r"(?P<theme>\w+?)_(?P<hardware>[\w-]+)_(?P<day>\d{4}-\d\d-\d\d)-?(?P<which>[\w-]*)\.md")
_HEAD = 2000
_TABLE = re.compile(r"(?<=\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def page():
    """Return the page with the table that the files have. A name or a head without its form is a ValueError."""
    files = {path.name: path for path in FOLDER.glob("*.md") if path != PAGE}
    told = [_told(path) for name, path in files.items() if name not in OLDER]
    # By theme, and the newest first.
    told.sort(key=lambda each: (each[-1], each[2]), reverse=True)
    told.sort(key=lambda each: each[0])
    rows = [each[1:] for each in told] + [*ELSEWHERE]
    made, count = _TABLE.subn(lambda _: "".join(f"| {' | '.join(row)} |\n" for row in rows), PAGE.read_text("utf-8"))
    assert 1 == count, "the page has no place for the table"
    return made


def _told(path):
    """(theme, question, link, day) of a file."""
    name, head = _NAME.fullmatch(path.name), path.read_text("utf-8")[:_HEAD]
    if not name:
        raise ValueError(f"{path.name}: the name must be <theme>_<hardware>_<date>.md")
    theme, hardware, day, which = name.groups()
    if day not in head:
        raise ValueError(f"{path.name}: its head must state the day {day}")
    asked = next((each for each in head.split("\n\n") if each.startswith("Question: ")), "")
    # What stands behind the last question mark is an answer.
    question = " ".join(asked.removeprefix("Question: ").rpartition("?")[0].split())
    if not question:
        raise ValueError(f"{path.name}: its head must have a paragraph 'Question: ...?'")
    where = f"{theme}, {hardware}{which and f', {which}'}"
    return theme, f"{question[0].upper()}{question[1:]}?", f"[{where}]({path.name})", day


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
