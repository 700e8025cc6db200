"""What a server or a bundle says never steers a terminal; in a pipe its bytes stay as they are."""

import json
import re
import sys

import pytest
from grpc import StatusCode

import fakes
from fakes import Failure
from weft._terminal import steerless
from weft_command import running

EVIL = "a\x1b[2Jb\x9b31mc\x07\x7f\r\nd\te"
HARMLESS = "a␛[2Jb\ufffd31mc␇␡␍\nd\te"


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Make stdout a terminal for `weft`; gives what runs it."""

    def run(*argv):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        code = running.run([str(each) for each in argv])
        return (code, *capsys.readouterr())

    return run


def steers(text):
    """Whether a terminal would take some of it as a command, colours of our own tables left out."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in text)


def test_signs_stand_for_controls():
    """Line ends and tabs are text; each other control character becomes a sign."""
    assert HARMLESS == steerless(EVIL)
    assert not steers(steerless("".join(map(chr, range(0x300)))))


@pytest.mark.parametrize("argv", [("translate", EVIL), ("generate", EVIL, "--stream"), ("tag", "A\x1b[2JB")])
def test_an_answer_on_a_terminal(weft_command, terminal, argv):
    """On a terminal signs; in a pipe the bytes that came."""
    code, out, _ = terminal(*argv)
    assert 0 == code
    assert not steers(out)
    assert "␛" in out


def test_an_answer_in_a_pipe_stays_as_it_is(weft_command):
    """Nothing of it is changed."""
    assert (0, "\x1b[31mb a\n") == weft_command("translate", "a \x1b[31mb")[:2]


def test_json_holds_no_control_character(weft_command):
    """They are escaped, on a terminal and in a pipe, and what is read back is what came."""
    _, out, _ = weft_command("translate", "a\x9b31m\x1b\x7f", "--json")
    assert not steers(out)
    assert "a\x9b31m\x1b\x7f" == json.loads(out)["text"]


@pytest.mark.parametrize("argv", [("models",), ("classify", "--text", "a", "--model", EVIL, "--verbose")])
def test_a_table(weft_command, terminal, monkeypatch, argv):
    """A bundle's description and a model's name in tables, on a terminal or not."""
    evil = fakes.model.Model(name=EVIL, version=1, description=EVIL, error=EVIL, prefixes=[EVIL])
    monkeypatch.setattr(fakes, "MODELS", [evil])
    for run in (weft_command, terminal):
        code, out, err = run(*argv)
        assert 0 == code
        assert not steers(out + err)


def test_bench_failures(server, weft_command, monkeypatch):
    """What a server says of a failed request, in the table of a load."""
    server.servicer.script.extend([0.0] + [Failure(StatusCode.INTERNAL, "R\x1b[2J", "\x1b]0;title\x07")] * 3)
    _, out, err = weft_command(
        "bench", "--model", "en-es", "--requests", "5", "--concurrency", "1", "--warmup", "0", "--input-tokens", "4"
    )
    assert "title" in out
    assert not steers(out + err)
