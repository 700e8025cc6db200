"""Files in and out: a line for each line, nothing lost and nothing twice, whatever the lines are."""

import json
import os

import pytest
from grpc import StatusCode
from grpc_health.v1 import health

from fakes import Failure, fake_server
from weft._files import lines as lines_of_files
from weft._files.lines import LineSplitter
from weft_command import running

BAD = Failure(StatusCode.INVALID_ARGUMENT, "INPUT_TOO_LONG", "text: is too long")


@pytest.fixture
def files(tmp_path):
    """An input of three lines, and the path of an output."""
    source = tmp_path / "in.txt"
    source.write_text("a b\nc d\ne f\n")
    return source, tmp_path / "out.txt"


def test_each_line_has_an_answer(weft_command, files):
    """In order; what came of all stands on stderr, alone."""
    source, out = files
    code, shown, error = weft_command("translate", "--file", source, "--out", out)

    assert (0, "") == (code, shown)
    assert error.startswith("weft: 3 lines: 3 answered; ")
    assert "b a\nd c\nf e\n" == out.read_text()
    assert (0, "b a\nd c\nf e\n") == weft_command("translate", "--file", source)[:2]


ODD = {
    b"": "",
    b"\n": "\n",
    b"a b": "b a\n",
    b"a b\r\n\r\nc d\r\n": "b a\n\nd c\n",
    b"\xef\xbb\xbfa b\n": "b a\n",
    b"a b\n \t \nc\n": "b a\n\nc\n",
    b"a\x0bb\xe2\x80\xa8c\n": "c b a\n",
    b"\n\na\n\n": "\n\na\n\n",
}


@pytest.mark.parametrize("data", ODD)
def test_odd_lines_keep_their_places(weft_command, server, files, data):
    """Empty lines stay, unasked; CRLF and the mark of UTF-8 go; only a line feed ends a line."""
    source, out = files
    source.write_bytes(data)

    assert 0 == weft_command("translate", "--file", source, "--out", out)[0]
    assert ODD[data] == out.read_text()
    assert sum(bool(line.strip()) for line in ODD[data].split("\n")) == len(server.servicer.seen)


def test_a_failed_line_is_empty_and_told(weft_command, server, files):
    """By its number, with the flag that was typed; the exit code is 1."""
    source, out = files
    source.write_bytes(b"a b\nno\n\xff\nc\n")
    server.servicer.by_text = {"no": Failure(StatusCode.INVALID_ARGUMENT, "X", "decoding.max_new_tokens is too much")}
    code, _, error = weft_command("translate", "--file", source, "--out", out)

    assert (1, "b a\n\n\nc\n") == (code, out.read_text())
    assert [
        "weft: line 2: --max-new-tokens is too much",
        "weft: line 3: not UTF-8: invalid start byte at byte 0",
    ] == error.splitlines()[:2]
    assert error.splitlines()[2].startswith("weft: 4 lines: 2 answered, 2 failed; ")


def test_lines_of_json_say_what_they_want(weft_command, server, files, tmp_path):
    """Each with its own input and options, over those of the command line; its id comes back; errors are objects."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"text": "a b", "id": {"n": 1}},
        "c d",
        [5, 6],
        {
            "token_ids": [7],
            "decoding": {"strategy": {"beams": {"num_beams": 3}}, "num_outputs": 2},
            "num_top_tokens": 2,
        },
        {"text": "x", "model": "m", "decoding": {"max_new_tokens": 9}, "target_language": "pt", "return_scores": True},
        {"id": 8},
        {"text": "a", "token_ids": [1]},
        {"text": "a", "nope": 1},
        {"text": 5},
        {"text": "a", "decoding": {"stop": "x"}},
        5,
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n{\n")
    code, _, error = weft_command(
        "translate", "--file", source, "--out", out, "--max-new-tokens", "5", "--concurrency", "1"
    )

    assert (1, 1) == (code, error.count("\n"))
    answers = [json.loads(line) if line else None for line in out.read_text().split("\n")]
    assert ["b a", "d c", "6 5", "7", "x"] == [answer["text"] for answer in answers[:5]]
    assert {"n": 1} == answers[0]["id"]
    assert "id" not in answers[1]
    assert 1 == len(answers[3]["others"])
    assert [-0.5] == answers[4]["token_log_probs"]
    said = [answer["error"]["message"].partition(":")[0] for answer in answers[5:11]]
    assert ["give one of text, token_ids"] * 2 + [
        "nope",
        "text",
        "decoding.stop",
        "must be an object, a text or token ids",
    ] == said
    assert ({"INVALID_ARGUMENT"}, 8) == ({each["error"]["code"] for each in answers[5:11]}, answers[5]["id"])
    assert answers[11] is None
    assert answers[12]["error"]["message"].startswith("is no JSON: ")
    first, *_, beams, last = (seen.request for seen in server.servicer.seen)
    assert [5, 5, 9] == [each.decoding.max_new_tokens for each in (first, beams, last)]
    assert (3, 2) == (beams.decoding.beams.num_beams, beams.decoding.num_outputs)
    assert ("m", "pt") == (last.model.name, last.target_language)


def test_half_a_character_ends_no_run(weft_command, tmp_path):
    """What JSON can name and UTF-8 can't hold comes back as an id, and is refused as a text."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "a b", "id": "\\ud800"}\n{"text": "\\ud800"}\n{"\\ud800": 1}\n')
    for flags in (["--out", out], []):
        code, shown, _ = weft_command("translate", "--file", source, "--jsonl", *flags)
        first, second, third = map(json.loads, (out.read_text() if flags else shown).splitlines())

        assert (1, "\ud800", "b a") == (code, first["id"], first["text"])
        assert "text: " == second["error"]["message"][:6]
        assert "is unknown" in third["error"]["message"]


def test_every_verb_reads_lines(weft_command, picture, tmp_path):
    """Texts, paths of pictures, chats; as text or JSON, by the names of the files or as it is said."""
    out, source = tmp_path / "out", tmp_path / "in"

    def lines(verb, *given, flags=()):
        source.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in given))
        code, _, error = weft_command(verb, "--file", source, "--out", out, "--force", *flags)
        assert 0 == code, error
        return out.read_text().splitlines()

    assert ["a picture of a 5 bytes"] == lines("caption", str(picture))
    assert ["5 here? is who"] == lines("answer", f"{picture}\twho is here?")
    assert ["text", "text"] == lines("classify", "some words", "others")
    assert ["image"] == lines("classify", str(picture), flags=["--pictures"])
    assert ["NAME 3 7 LIMA\tNAME 8 11 ROM", ""] == lines("tag", "in LIMA ROM", "in it")
    assert ["1 1 0 0", "0 0 1 0"] == lines("embed", "a b", "c")
    assert ["0 0 0 0"] == lines("embed", str(picture), flags=["--pictures"])
    assert ["b a\ta b"] == lines("generate", "a b", flags=["--n-best", "2"])
    answers = [
        *lines("generate", {"messages": [{"role": "user", "content": "a"}]}, flags=["--jsonl"]),
        *lines("classify", {"image": str(picture), "top_k": 1}, flags=["--jsonl"]),
        *lines("answer", {"image": str(picture), "question": "a b"}, flags=["--jsonl"]),
        *lines("tag", "in LIMA", flags=["--json", "--tokens"]),
    ]
    chat, labels, asked, tags = map(json.loads, answers)
    assert "5 b a" == asked["text"]
    assert ("a user:", "image", "LIMA") == (chat["text"], labels["labels"][0]["label"], tags["spans"][0]["text"])


def test_a_line_to_score_has_a_source_and_a_target(weft_command, server, picture, tmp_path):
    """A tab stands between them, or JSON names them; the source may be a picture; its line is the sum."""
    source, out = tmp_path / "in.tsv", tmp_path / "out"
    about = ["--model", "m", "--file", source]
    source.write_text("a b\tc d\n\nno target\na\tb\tc\n")
    code, shown, error = weft_command("score", *about)
    assert (1, "-1.5000\n\n\n\n") == (code, shown)
    assert ["must be a source and a target, with a tab between them"] * 2 == [
        line.partition(": ")[2].partition(": ")[2] for line in error.splitlines()[:2]
    ]
    source.write_text(f"{picture}\tcat\n")
    assert (0, "-0.5000\n") == weft_command("score", *about, "--picture")[:2]
    assert b"12345" == server.servicer.seen[-1].request.image.data

    lines = [
        {"text": "a", "target": "b c", "id": 1, "num_top_tokens": 1},
        {"token_ids": [1], "target": [2, 3, 4], "model": "other"},
        {"image": str(picture), "target": "cat"},
        {"text": "a"},
        {"target": "a"},
        "a",
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert 1 == weft_command("score", *about, "--jsonl", "--out", out, "--concurrency", "1")[0]
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [-1.5, -3.0, -0.5] == [answer["total"] for answer in answers[:3]]
    assert (1, 2) == (answers[0]["id"], len(answers[0]["top_tokens"]))
    said = ["give target", "give one of text, token_ids, image, audio", "give target"]
    assert said == [answer["error"]["message"] for answer in answers[3:]]
    assert ["m", "other", "m"] == [seen.request.model.name for seen in server.servicer.seen[-3:]]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["a", "b"], "--file does not go with a source and a target"),
        (["a"], "--file does not go with a source and a target"),
        (["--scores"], "--scores with --file needs lines of JSON"),
        (["--verbose"], "--verbose does not go with --file"),
    ],
)
def test_what_does_not_go_with_lines_to_score(weft_command, server, files, flags, said):
    """It is said at once, and nothing is asked."""
    code, _, error = weft_command("score", "--model", "m", "--file", files[0], *flags)
    assert (2, []) == (code, server.servicer.seen)
    assert said in error


def test_line_ends_within_an_answer_are_spaces(weft_command, server, files):
    """So that line numbers stay aligned."""
    server.servicer.glue = "\r\n"
    source, out = files
    weft_command("generate", "--file", source, "--out", out)
    assert "b a\nd c\nf e\n" == out.read_text()


@pytest.mark.parametrize("kept", ["", "b", "b a\n", "b a\nd", "b a\nd c\n", "b a\nd c\nf e\n", "b a\nd c\nf e"])
def test_a_run_goes_on_where_another_ended(weft_command, server, files, kept):
    """Behind the last whole line; a part of a line is cut off; the lines before are not asked again."""
    source, out = files
    out.write_text(kept)
    code, _, error = weft_command("translate", "--file", source, "--out", out, "--resume")

    assert (0, "b a\nd c\nf e\n") == (code, out.read_text())
    assert 3 - kept.count("\n") == len(server.servicer.seen)
    assert (f", {kept.count(chr(10))} were there" in error or " 3 were there" in error) == ("\n" in kept)


def test_what_is_there_is_kept(weft_command, server, files):
    """Unless --resume or --force says otherwise; a server that is away changes nothing at all."""
    source, out = files
    out.write_text("precious\n")
    code, _, error = weft_command("translate", "--file", source, "--out", out)
    assert (2, "precious\n") == (code, out.read_text())
    assert "is there already; --resume goes on" in error
    for flags in (["--force"], ["--resume"]):
        assert 1 == weft_command("translate", "--file", source, "--out", out, *flags, "-t", "127.0.0.1:1")[0]
        assert "precious\n" == out.read_text()
    out.write_text("1\n2\n3\n4\n")
    code, _, error = weft_command("translate", "--file", source, "--out", out, "--resume")
    assert (2, "1\n2\n3\n4\n") == (code, out.read_text())
    assert f"weft: --resume: there are answers to 4 lines, and {source} has 3\n" == error
    out.unlink()
    assert 1 == weft_command("translate", "--file", source, "--out", out, "-t", "127.0.0.1:1")[0]
    assert not out.exists()
    assert [] == server.servicer.seen


def test_two_runs_do_not_write_one_file(weft_command, files):
    """The second is refused while the first goes on."""
    from weft._files.lines import Source
    from weft._files.out import Out

    source, out = files
    with Out(out, Source(source)):
        code, _, error = weft_command("translate", "--file", source, "--out", out, "--resume")
    assert (2, f"weft: --out: another run writes {out}\n") == (code, error)


def test_a_line_that_nobody_can_hold(weft_command, server, files, monkeypatch):
    """It is refused, and those around it are answered."""
    monkeypatch.setattr(lines_of_files, "MAX_LINE_BYTES", 8)
    source, out = files
    source.write_text(f"a b\n{'x ' * 100_000}\nc d\n" + "y" * 9)
    code, _, error = weft_command("translate", "--file", source, "--out", out)

    assert (1, "b a\n\nd c\n\n") == (code, out.read_text())
    assert "weft: line 2: the line has more than 8 bytes\n" in error
    assert 2 == len(server.servicer.seen)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_do_not_depend_on_chunks(size):
    """However the bytes come, the lines and the places of their ends are the same."""
    data = b"a\r\n\nbc\xff\nlast\r"
    splitter = LineSplitter()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    found = [line for chunk in chunks for line in splitter.feed(chunk)] + list(splitter.last())

    assert [(1, b"a", 3), (2, b"", 4), (3, b"bc\xff", 8), (4, b"last", 13)] == [
        (line.number, line.data, line.end) for line in found
    ]


def test_a_server_that_cannot_be_reached_ends_the_run(weft_command, server, files):
    """It is no fault of the line: that has no answer, so that --resume asks it again."""
    source, out = files
    server.servicer.by_text = {"e f": Failure(StatusCode.UNAUTHENTICATED, message="no token")}
    code, _, error = weft_command("translate", "--file", source, "--out", out, "--concurrency", "1")
    assert (1, "b a\nd c\n") == (code, out.read_text())
    assert error.startswith("weft: stopped: 2 lines: 2 answered; ")
    assert ". --resume goes on\nweft: " in error
    server.servicer.by_text = {}
    assert 0 == weft_command("translate", "--file", source, "--out", out, "--resume")[0]
    assert "b a\nd c\nf e\n" == out.read_text()


CLOSED = Failure(StatusCode.PERMISSION_DENIED, "MODEL_NOT_ALLOWED")
REFUSED = Failure(StatusCode.UNAVAILABLE, "MODEL_NOT_READY")
LOADING = Failure(StatusCode.UNAVAILABLE, "MODEL_NOT_READY", retry_after=3600.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "named", "goes_on"),
    [
        (CLOSED, {"model": "theirs"}, True),
        (CLOSED, {}, False),
        (REFUSED, {"model": "broken"}, True),
        (REFUSED, {}, False),
        (LOADING, {"model": "late"}, False),
    ],
)
def test_a_model_that_never_answers_fails_the_lines_that_name_it(
    weft_command, server, tmp_path, failure, named, goes_on
):
    """Others may name other models. Where all lines mean that one, or it will come, the run ends there."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in ("a b", {"text": "no"} | named, "c d")))
    server.servicer.by_text = {"no": failure}
    code, _, error = weft_command("translate", "--file", source, "--out", out, "--concurrency", "1")

    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert (1, goes_on) == (code, "stopped" not in error)
    assert ["b a", "d c"][: 1 + goes_on] == [answer["text"] for answer in answers if "text" in answer]
    assert [failure.reason] * goes_on == [answer["error"]["reason"] for answer in answers if "error" in answer]


def test_a_late_line_is_a_failed_line(weft_command, server, files):
    """While the server is there."""
    source, out = files
    server.servicer.by_text = {"c d": 30.0}
    code, _, error = weft_command("translate", "--file", source, "--out", out, "--timeout", "4")
    assert (1, "b a\n\nf e\n") == (code, out.read_text())
    assert "weft: line 2: " in error


WRONG = [
    ("--file no.txt", "--file: cannot read no.txt: No such file or directory"),
    ("--file .", "--file: cannot read .: Is a directory"),
    ("--file IN --out no/out.txt", "--out: cannot write no/out.txt: there is no folder 'no'"),
    ("--file IN --out .", "--out: . is a folder"),
    ("--file IN --out IN", "--out: IN is the file that --file reads"),
    ("--file IN --resume", "--resume needs --out"),
    ("--file IN --out x --resume --force", "--resume does not go with --force"),
    ("--file IN --out /dev/null --resume", "--resume: /dev/null is not a regular file"),
    ("text --file IN", "--file does not go with a text"),
    ("text --out x", "--out needs --file"),
    ("text --concurrency 3", "--concurrency needs --file"),
    ("--file IN --stream", "--stream does not go with --file"),
    ("--file IN --verbose", "--verbose does not go with --file"),
    ("--file IN --explain x.png", "--explain does not go with --file"),
    ("--file IN --scores", "--scores with --file needs lines of JSON: --json, or --out with a name in .jsonl"),
    ("--file IN --top-logprobs 3", "--top-logprobs with --file needs lines of JSON: --json, or --out with a name in"),
    ("--file IN --ban \udc80", "--ban: "),
    ("", "give a text or --file"),
]


@pytest.mark.parametrize(("argv", "said"), WRONG)
def test_wrong_usage_is_told_before_anything_is_asked(weft_command, server, files, argv, said):
    """One line, exit code 2, nothing made."""
    source, _ = files
    code, out, error = weft_command("translate", *argv.replace("IN", str(source)).split())

    assert (2, "", "") == (code, out, error.partition("\n")[2])
    assert error.startswith(f"weft: {said}".replace("IN", str(source)))
    assert [] == server.servicer.seen
    assert ["in.txt"] == [each.name for each in source.parent.iterdir()]


def test_a_full_disk_is_one_line(weft_command, files):
    """And no line counts that was not written."""
    code, _, error = weft_command("translate", "--file", files[0], "--out", "/dev/full")
    assert (1, "weft: --out: cannot write /dev/full: No space left on device\n") == (code, error)
    assert os.path.exists("/dev/full")  # noqa: PTH110 - it is no file of ours to take away


def test_a_write_that_takes_a_part_is_gone_on_with(weft_command, files, monkeypatch):
    """As of a disk that is nearly full for a moment: each line is whole."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
    assert 0 == weft_command("translate", "--file", files[0], "--out", files[1])[0]
    assert "b a\nd c\nf e\n" == files[1].read_text()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_line_that_takes_too_long_is_a_failed_one_where_the_server_is_there(monkeypatch, capsys, files, is_there):
    """Where nobody says that it lives, the run ends as it does without a server: the line has no answer yet."""
    source, out = files

    class Checks(health.HealthServicer):
        """Health of a server that may have gone."""

        def Check(self, request, context):  # noqa: N802 - gRPC's name
            """As the class above; "live" is a service that it does not know."""
            if not is_there:
                context.abort(StatusCode.DEADLINE_EXCEEDED, "gone")
            return super().Check(request, context)

    with fake_server(checks=Checks(experimental_non_blocking=False)) as server:
        monkeypatch.setenv("WEFT_TARGET", server.target)
        server.servicer.by_text = {"c d": Failure(StatusCode.DEADLINE_EXCEEDED, "DEADLINE", "too late")}
        code = running.run(["translate", "--file", str(source), "--out", str(out), "--wait", "0"])
    error = capsys.readouterr().err
    if is_there:
        assert (1, "b a\n\nf e\n") == (code, out.read_text())
        assert error.startswith("weft: line 2: ")
    else:
        assert (1, "b a\n") == (code, out.read_text())
        assert error.startswith("weft: stopped: 1 line: 1 answered")
