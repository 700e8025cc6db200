"""What a person sees of an answer, on a terminal, in a pipe and in Python."""

import pytest

from fakes import MODELS
from weft import _answers, _show
from weft._completions import Generation, Output, Segment, Transcription
from weft._decoding import Decoding
from weft._files.out import text_line
from weft._tables import model_table
from weft._types import (
    FinishReason,
    ResolvedModel,
    Timings,
    Usage,
)
from weft_command import running

PARTS = {
    "token_ids": (5, 6),
    "tokens": (),
    "token_log_probs": (),
    "finish_reason": FinishReason.STOP,
    "decoding": Decoding(max_new_tokens=3),
    "usage": Usage(input_tokens=1, output_tokens=2),
    "timings": Timings(queue=0.5, prefill=0.0, decode=1.0),
    "model": ResolvedModel("a", 1),
    "request_id": "r",
}
SEGMENTS = (Segment(0.0, 1.0, " Hello"), Segment(1.0, 2.0, " you."))
HEARD = Transcription(text=" Hello you.", **PARTS, segments=SEGMENTS, others=(Output(" Yes", (), (), (), "stop"),))


def test_an_answer_is_shown_without_what_it_does_not_say():
    """Nothing that is empty, None or as by default stands in a repr; what is left can be read at a glance."""
    assert (
        "Generation(text='b a', token_ids=(5, 6), finish_reason=<FinishReason.STOP: 'stop'>,"
        " decoding=Decoding(max_new_tokens=3), usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=0),"
        " timings=Timings(queue=0.5, prefill=0.0, decode=1.0), model=ResolvedModel(name='a', version=1, adapter=''),"
        " request_id='r')"
    ) == repr(Generation(text="b a", **PARTS))
    assert "Transcription(text=' Hello you.', token_ids=" in repr(HEARD)
    assert "Model(name='en-es', version=1, " in repr(_answers.model(MODELS[0]))
    assert "None" not in repr(_answers.model(MODELS[0]))


def test_what_is_heard_is_printed_from_its_first_word(capsys):
    """Whisper writes a space before each word. The first one is no part of what is printed, in whatever way."""
    _show.written(HEARD, scores=False, as_json=False)
    _show.timed(HEARD)
    assert "Hello you.\nYes\n0.00\t1.00\tHello\n1.00\t2.00\tyou.\n" == capsys.readouterr().out
    assert "Hello you.\tYes" == text_line(_show.texts_of(HEARD))
    written = Generation(text=" a", **PARTS)
    assert " a" == text_line(_show.texts_of(written)), "a prompt is gone on with as it is"


class Deltas:
    """A stream of these."""

    result = HEARD

    def __init__(self, *deltas):
        self.deltas = iter(deltas)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __next__(self):
        return next(self.deltas)


@pytest.mark.parametrize(("heard", "printed"), [(True, "Hello you.\n"), (False, "  Hello you.\n")])
def test_a_stream_of_what_is_heard_begins_with_a_word(heard, printed, capsys):
    """Spaces before it may come as a delta of their own. Those behind it are words' own."""
    _show.streamed(Deltas(" ", " Hello", " you."), scores=False, as_json=False, heard=heard)

    assert printed == capsys.readouterr().out


@pytest.mark.parametrize("columns", ["50", "200"])
def test_a_table_in_a_pipe_is_as_wide_as_it_is_told(columns, monkeypatch, capsys):
    """COLUMNS says so, as for other programs; without it there is room for a page."""
    models = [_answers.model(MODELS[0])]
    monkeypatch.setenv("COLUMNS", columns)
    model_table(models)
    told = capsys.readouterr().out
    monkeypatch.delenv("COLUMNS")
    model_table(models)

    assert int(columns) >= max(map(len, told.splitlines()))
    assert told != capsys.readouterr().out or columns == "200"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["export", "a", "--precision", "fp31"], "Invalid value for '--precision': 'fp31' is not one of 'fp32',"),
        (["translate", "a", "--beams", "0"], "Invalid value for '--beams': it must be greater than or equal to 1. Try"),
    ],
)
def test_a_wrong_value_is_said_in_our_words(line, said, capsys):
    """The option, what was given or what it must be; nothing of the library that found out."""
    assert 2 == running.run(line)
    assert said in capsys.readouterr().err
