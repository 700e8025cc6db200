"""The command line: the answer alone on stdout, the rest on stderr, one line per error, an exit code to trust."""

import io
import json
import os
from dataclasses import replace

import pytest
import typer
from grpc import StatusCode

import weft
from fakes import MODELS, Failure
from weft import _answers, cli
from weft._tables import model_table
from weft_bench.command import app as bench


def feed(monkeypatch, data):
    """Put bytes on stdin."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_chat_is_one_message_of_the_user(weft_command, server):
    """--chat sends it, --system stands before it, and a dash reads it from stdin."""
    assert (0, "b a user:\n", "") == weft_command("generate", "--chat", "a b")
    assert (0, "b a user: x system:\n", "") == weft_command("generate", "--system", "x", "--chat", "a b", "--stream")
    roles = [[turn.role for turn in _unary(seen.request).messages.turns] for seen in server.servicer.seen]
    assert [["user"], ["system", "user"]] == roles


def test_a_chat_is_told_of_the_tools_of_a_file(weft_command, server, tmp_path):
    """As OpenAI's API has them. The same file may tell how strictly, which nobody follows here."""
    file = tmp_path / "tools.json"
    function = {"name": "weather", "description": "Tells it.", "parameters": {"type": "object"}, "strict": True}
    file.write_text(json.dumps([{"type": "function", "function": function}]))
    assert (0, "b a user:\n", "") == weft_command("generate", "--chat", "a b", "--tools", str(file))
    (told,) = server.servicer.seen[0].request.messages.functions
    assert ("weather", "Tells it.", '{"type": "object"}') == (told.name, told.description, told.parameters)


def test_a_chat_may_be_about_pictures(weft_command, server, tmp_path):
    """Each --picture is a part before the text. Without --chat there is nothing to say about it."""
    paths = [tmp_path / name for name in ("a.png", "b.png")]
    for path in paths:
        path.write_bytes(path.name.encode())
    shown = [argument for path in paths for argument in ("--picture", str(path))]
    assert 0 == weft_command("generate", "--chat", "which one?", *shown)[0]
    (turn,) = server.servicer.seen.pop().request.messages.turns
    assert [b"a.png", b"b.png", "which one?"] == [part.text or part.image.data for part in turn.parts]

    for arguments in (("a", *shown), ("--chat", "a", "--picture", str(tmp_path / "none.png"))):
        code, out, error = weft_command("generate", *arguments)
        assert (2, "", 1, []) == (code, out, error.count("\n"), server.servicer.seen)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[7]",
        "[" * 100_000,
        '[{"type": "function"}]',
        '[{"type": "code", "function": {"name": "a"}}]',
        '[{"type": "function", "function": {"description": "a"}}]',
        '[{"type": "function", "function": {"name": "a", "arguments": {}}}]',
        '[{"type": "function", "function": {"name": "a", "parameters": []}}]',
        '[{"type": "function", "function": {"name": 7}}]',
    ],
)
def test_a_file_that_has_no_tools_is_refused(weft_command, server, tmp_path, text):
    """In one line, and nothing is sent."""
    file = tmp_path / "tools.json"
    file.write_text(text)
    code, out, error = weft_command("generate", "--chat", "a", "--tools", str(file))
    assert (2, "", []) == (code, out, server.servicer.seen)
    assert 1 == error.count("\n")


def test_tools_are_for_a_chat_and_of_a_file(weft_command, server, tmp_path):
    """A prompt has none, and what is not there cannot be read."""
    for arguments in (("a",), ("--chat", "a")):
        code, _, error = weft_command("generate", *arguments, "--tools", str(tmp_path / "none.json"))
        assert (2, True, []) == (code, "--tools" in error, server.servicer.seen)


def test_a_long_text_is_split_if_asked(weft_command, server):
    """--split asks for it; without it nothing is."""
    for flags in ([], ["--split"], ["--split", "--stream"]):
        assert (0, "b a\n", "") == weft_command("translate", "a b", *flags)
    assert [False, True, True] == [_unary(seen.request).split_sentences for seen in server.servicer.seen]


def _unary(request):
    return getattr(request, "request", request)


def test_stdout_holds_the_answer_alone(weft_command, picture):
    """Each verb prints its answer, one line, and nothing else anywhere."""
    assert (0, "bread eating are we\n", "") == weft_command("translate", "we are eating bread")
    assert (0, "a picture of a 5 bytes\n", "") == weft_command("caption", picture)
    assert (0, "image\n", "") == weft_command("classify", picture)
    assert (0, "text\n", "") == weft_command("classify", "--text", "some words")
    assert (0, "text\n", "") == weft_command("classify", "--text", "some words", "--pair", "others")
    assert (0, "NAME\t3\t7\tLIMA\n", "") == weft_command("tag", "in LIMA")
    assert (0, "", "") == weft_command("tag", "no name")
    assert (0, "b a\n", "") == weft_command("generate", "a b")
    assert (0, "2 1 0 0\n", "") == weft_command("embed", "a ba")


def test_a_text_in_the_place_of_a_picture_is_told_its_flag(weft_command):
    """`weft classify` takes a picture first. A text there is no file, and --text is what was meant."""
    code, out, error = weft_command("classify", "I love it")

    assert (2, "") == (code, out)
    assert "weft: there is no file 'I love it'; --text TEXT classifies a text\n" == error


def test_what_is_said_has_times_if_asked(weft_command, server, picture):
    """--timestamps asks the model for them, and prints a line for each segment: start, end and text."""
    assert (0, "sound of 5 bytes\n", "") == weft_command("transcribe", picture)
    times = "0.00\t1.00\tsound of\n1.00\t2.00\t5 bytes\n"
    assert (0, times, "") == weft_command("transcribe", picture, "--timestamps")
    assert [False, True] == [seen.request.timestamps for seen in server.servicer.seen]


def test_times_are_never_left_out_in_silence(weft_command, server, picture, tmp_path):
    """A stream of text and a file of texts have no place for them: --timestamps is refused there, not ignored."""
    code, out, err = weft_command("transcribe", picture, "--timestamps", "--stream")
    assert (2, "") == (code, out)
    assert "--timestamps" in err
    (tmp_path / "in.txt").write_text(f"{picture}\n")
    code, out, err = weft_command("transcribe", "--file", tmp_path / "in.txt", "--timestamps")
    assert (2, "") == (code, out)
    assert "--timestamps" in err
    assert [] == server.servicer.seen
    *_, final = weft_command("transcribe", picture, "--timestamps", "--stream", "--json")[1].splitlines()
    assert 2 == len(json.loads(final)["final"]["segments"])


def test_vectors_are_lines_of_numbers_or_are_compared(weft_command, server, picture, monkeypatch):
    """--cosines prints each pair, most alike first; --dimensions cuts; --pictures takes paths; --json is all of it."""
    assert (0, "1 0 0 0\n0 2 0 0\n", "") == weft_command("embed", "a", "bb")
    assert (0, "1 0\n", "") == weft_command("embed", "a", "--dimensions", "2")
    assert 2 == server.servicer.seen[-1].request.dimensions
    pairs = "1.0000\ta\taa\n0.5774\ta\tab c\n0.5774\taa\tab c\n"
    assert (0, pairs, "") == weft_command("embed", "a", "aa", "ab\nc", "--cosines")
    assert (0, "0 0 0 0\n", "") == weft_command("embed", str(picture), "--pictures")
    assert 5 == len(server.servicer.seen[-1].request.inputs[0].image.data)
    assert [[1, 1, 0, 0]] == json.loads(weft_command("embed", "ab", "--json")[1])["vectors"]
    feed(monkeypatch, b"cab\n")
    assert (0, "1 1 1 0\n", "") == weft_command("embed", "-")
    for wrong in (["--cosines"], ["--scores"], ["--explain", "x.png", "--cosines"]):
        assert 2 == weft_command("embed", "a", *wrong)[0]
    assert 2 == weft_command("embed")[0]


def test_tokens_are_lines(weft_command, server, monkeypatch):
    """Id, start, end and text of each; --count prints their number, --json all of it, and a dash reads the text."""
    assert (0, "1\t0\t1\t'a'\n2\t3\t5\t'ñb'\n0\t0\t0\t'</s>'\n", "") == weft_command("tokenize", "m", "a  ñb")
    assert (0, "3\n", "") == weft_command("tokenize", "m", "a b", "--count", "--side", "output")
    feed(monkeypatch, b"from stdin\n")
    _, out, _ = weft_command("tokenize", "m", "-", "--json", "--source-language", "en", "--model-version", "3")
    token = {"id": 2, "token": "stdin", "start": 5, "end": 10, "added": False}
    assert (3, token) == (json.loads(out)["num_tokens"], json.loads(out)["tokens"][1])
    sent = server.servicer.seen[-1].request
    assert ("m", 3, "from stdin", "en") == (sent.model.name, sent.model.version, sent.text, sent.source_language)
    assert (0, "w7 w8\n", "") == weft_command("detokenize", "m", "7", "8", "--side", "input")
    _, out, _ = weft_command("detokenize", "m", "7", "--json")
    assert ("w7", ["w7"]) == (json.loads(out)["text"], json.loads(out)["tokens"])
    assert all(2 == weft_command(*wrong)[0] for wrong in (["tokenize", "m"], ["detokenize", "m"]))
    assert all(2 == weft_command(verb, "m", "7", "--side", "left")[0] for verb in ("tokenize", "detokenize"))
    assert 2 == weft_command("detokenize", "m", "seven")[0]
    for said, expected in (
        ("model.name 'm' is none", "MODEL 'm' is none"),
        ("side must be SIDE_INPUT: 'm' writes no text", "--side must be input: 'm' writes no text"),
    ):
        server.servicer.script.append(Failure(StatusCode.INVALID_ARGUMENT, "X", said, "f"))
        assert (2, "", f"weft: {expected}\n") == weft_command("tokenize", "m", "a")


def test_of_two_inputs_one_is_wanted(weft_command, picture):
    """The error does not ask for what was given."""
    code, _, error = weft_command("classify", str(picture), "--text", "a")
    assert (2, "weft: give only one of a picture, --text\n") == (code, error)


def test_a_score_is_one_line(weft_command, server, picture, monkeypatch):
    """The sum; --top and --scores show each token on stderr, --json is all; --picture and --recording take a path."""
    assert (0, "-1.5000\n", "") == weft_command("score", "a b c", "d e", "--model", "m")
    code, out, err = weft_command("score", "a b c", "d e", "--model", "m", "--top", "2")
    assert (0, "-1.5000\n") == (code, out)
    assert all(word in err for word in ("'d'", "'e'", "0.6065", "0.3679", "0.2231"))
    _, out, _ = weft_command("score", "a", "d e", "--model", "m", "--json", "--top", "1")
    assert [-0.5, -1.0] == json.loads(out)["token_log_probs"]
    assert 2 == len(json.loads(out)["top_tokens"])
    assert (0, "-0.5000\n", "") == weft_command("score", str(picture), "cat", "--model", "m", "--picture")
    recording = picture.with_suffix(".wav")
    recording.write_bytes(b"RIFF\0\0\0\0WAVE")
    assert (0, "-0.5000\n", "") == weft_command("score", str(recording), "cat", "--model", "m", "--recording")
    for path, why in ((picture, f"{picture} is not a WAV or FLAC file"), ("no", "cannot read no: No such file")):
        code, _, error = weft_command("score", str(path), "cat", "--model", "m", "--recording")
        assert (2, True) == (code, error.startswith(f"weft: the recording: {why}"))
    assert 2 == weft_command("score", str(picture), "cat", "--model", "m", "--recording", "--picture")[0]
    feed(monkeypatch, b"from stdin\n")
    weft_command("score", "-", "d", "--model", "m", "--source-language", "en", "--target-language", "es")
    first, *_, with_picture, with_recording, last = (seen.request for seen in server.servicer.seen)
    assert ("m", 0) == (first.model.name, first.num_top_tokens)
    assert b"12345" == with_picture.image.data
    assert recording.read_bytes() == with_recording.audio.data
    assert ("from stdin", "en", "es") == (last.text, last.source_language, last.target_language)
    assert 2 == weft_command("score", "only a source", "--model", "m")[0]


def test_a_stream_prints_the_same(weft_command, picture):
    """With --stream the text is printed as it comes and is the same in the end."""
    assert (0, "bread eating are we\n", "") == weft_command("translate", "we are eating bread", "--stream")
    assert (0, "a picture of a 5 bytes\n", "") == weft_command("caption", picture, "--stream")
    assert (0, "b a\n", "") == weft_command("generate", "a b", "--stream")


def test_options_reach_the_request(weft_command, server):
    """Every option of the command line stands in its field of the request."""
    options = "--model m --model-version 2 --max-new-tokens 5 --temperature 0.5 --top-k 3 --top-p 0.25 --seed 7"
    languages = "--source-language en --target-language es"
    weft_command("translate", "a", *options.split(), *languages.split(), "--stop", "x", "--stop", "y", "--scores")

    request = server.servicer.seen[0].request
    sampling = request.decoding.sampling
    assert ("m", 2, "en", "es") == (
        request.model.name,
        request.model.version,
        request.source_language,
        request.target_language,
    )
    assert (5, ["x", "y"]) == (request.decoding.max_new_tokens, list(request.decoding.stop))
    assert (0.5, 3, 0.25, 7) == (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed)
    assert request.return_scores
    assert not request.HasField("explain")


def test_without_options_the_model_decides(weft_command, server):
    """Plain `weft generate` names neither model nor strategy."""
    weft_command("generate", "a")

    request = server.servicer.seen[0].request
    assert "" == request.model.name
    assert request.decoding.WhichOneof("strategy") is None


def test_a_dash_reads_stdin(weft_command, monkeypatch):
    """The text comes from stdin, without its last line end."""
    feed(monkeypatch, "eins zwei ñ\n".encode())
    assert (0, "ñ zwei eins\n", "") == weft_command("translate", "-")
    feed(monkeypatch, b"a b")
    assert (0, "b a\n", "") == weft_command("generate", "-", "--stream")
    feed(monkeypatch, b"\xff\xfe")
    code, out, error = weft_command("classify", "--text", "-")
    assert (2, "") == (code, out)
    assert "not UTF-8" in error


def test_scores_show_what_was_likely(weft_command, picture):
    """--scores lists labels with their probabilities, or the tokens' on stderr, so that stdout stays the text."""
    assert (0, "0.7500  image\n0.2500  other\n", "") == weft_command("classify", picture, "--scores")
    assert (0, "0.7500  image\n", "") == weft_command("classify", picture, "--scores", "--top", "1")
    assert (0, "0.7500\tNAME\t3\t7\tLIMA\n", "") == weft_command("tag", "in LIMA", "--scores")
    code, out, error = weft_command("generate", "a b", "--scores")
    assert (0, "b a\n") == (code, out)
    assert ["'b' 0 0.6065", "'a' 1 0.6065"] == [" ".join(line.split()) for line in error.rstrip().splitlines()][-2:]


def test_labels_that_hold_each_by_itself_are_all_printed(weft_command, picture, tmp_path):
    """All of them, a line each, and none if none holds; of labels to choose from the best one.

    Of a regression the values are printed, of one no name.
    """
    several = ("classify", "--text", "a", "--model", "flags")
    assert (0, "text\nother\n", "") == weft_command(*several)
    assert (0, "text\n", "") == weft_command(*several, "--threshold", "0.5")
    assert (0, "", "") == weft_command(*several, "--threshold", "0.9")
    assert (0, "0.7500  text\n", "") == weft_command(*several, "--threshold", "0.5", "--scores")
    choice = ("classify", picture, "--model", "flags", "--label", "text", "--label", "other")
    assert (0, "image\n", "") == weft_command(*choice)
    assert (0, "0.7500  image\n0.2500  other\n", "") == weft_command(*choice, "--scores")
    assert (0, "image\nother\n", "") == weft_command(*choice, "--threshold", "0.1")
    values = ("classify", "--text", "a", "--model", "stars")
    assert (0, "0.7500  text\n0.2500  other\n", "") == weft_command(*values)
    assert (0, "0.7500\n", "") == weft_command(*values, "--top", "1")
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_text("a\nb\n")
    for flags, lines in (([], ["text\tother"] * 2), (["--threshold", "0.9"], ["", ""])):
        asked = ("classify", "--file", source, "--out", out, "--force", "--model", "flags", *flags)
        assert 0 == weft_command(*asked)[0]
        assert lines == out.read_text().splitlines()


def test_answers_out_of_a_text_are_printed(weft_command, tmp_path):
    """A line each; with --scores its score and places. An empty line is the answer that there is none."""
    asked = ("extract", "in LIMA", "where?")
    assert (0, "in\n", "") == weft_command(*asked)
    assert (0, "0.7500\t0\t2\tin\n0.7500\t3\t7\tLIMA\n", "") == weft_command(*asked, "--top", "2", "--scores")
    assert (0, "in\n\n", "") == weft_command(*asked, "--allow-no-answer")
    assert "LIMA" == json.loads(weft_command(*asked, "--top", "2", "--json")[1])["answers"][1]["text"]
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_text("in LIMA\twhere?\n")
    assert 0 == weft_command("extract", "--file", source, "--out", out, "--top", "2")[0]
    assert "in\tLIMA\n" == out.read_text()
    source.write_text("in LIMA\n")
    code, _, error = weft_command("extract", "--file", source)
    assert (1, True) == (code, "must be a context and a question, with a tab between them" in error)
    for wrong, said in ((["extract", "a"], "give a text and a question or --file"), ([*asked, "--top", "0"], "--top")):
        code, _, error = weft_command(*wrong)
        assert (2, True) == (code, said in error)


def test_fillings_of_masks_are_printed(weft_command, tmp_path):
    """A line each, and an empty one between masks; with --scores each has its score and the place of its mask."""
    asked = ("fill-mask", "a [MASK] is [MASK]")
    assert (0, "cat\n##s\n\ncat\n##s\n", "") == weft_command(*asked)
    lines = "0.5000\t2\t8\tx\n0.5000\t12\t18\tx\n"
    assert (0, lines, "") == weft_command(*asked, "--scores", "--top", "1", "--among", "x", "--among", "y")
    assert "##s" == json.loads(weft_command(*asked, "--json")[1])["masks"][1]["fillings"][1]["text"]
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_text("a [MASK]\n[MASK] or [MASK]\n")
    assert 0 == weft_command("fill-mask", "--file", source, "--out", out)[0]
    assert "cat ##s\ncat ##s\tcat ##s\n" == out.read_text()
    for wrong, said in ((["fill-mask"], "give a text or --file"), ([*asked, "--top", "101"], "--top")):
        code, _, error = weft_command(*wrong)
        assert (2, True) == (code, said in error)


def test_tokens_are_lines_of_their_own(weft_command):
    """`tag --tokens` prints each token, in a span or not: label, start, end and text."""
    assert (0, "O\t0\t2\tin\nB-NAME\t3\t7\tLIMA\n", "") == weft_command("tag", "in LIMA", "--tokens")


def test_json_is_the_whole_answer(weft_command, picture):
    """--json prints one object; with --stream one per delta and the whole at the end."""
    _, out, error = weft_command("translate", "a b", "--json", "--seed", "3")
    answer = json.loads(out)
    assert ("b a", "stop", "") == (answer["text"], answer["finish_reason"], error)
    assert 3 == answer["decoding"]["strategy"]["sampling"]["seed"]
    assert "image" == json.loads(weft_command("classify", picture, "--json")[1])["labels"][0]["label"]
    assert "LIMA" == json.loads(weft_command("tag", "in LIMA", "--json")[1])["spans"][0]["text"]
    lines = [json.loads(line) for line in weft_command("generate", "a b", "--stream", "--json")[1].splitlines()]
    assert [{"delta": "b"}, {"delta": " a"}] == lines[:-1]
    assert "b a" == lines[-1]["final"]["text"]
    models = [json.loads(line) for line in weft_command("models", "--json")[1].splitlines()]
    assert ["en-es", "topics"] == [model["name"] for model in models]


def test_verbose_tells_how_it_came_about(weft_command):
    """Model, tokens, times and request id stand on stderr."""
    code, out, error = weft_command("generate", "a b", "-v", "--seed", "5")

    assert (0, "b a\n") == (code, out)
    for fact in ("pydocs version 1", "2 in, 2 out", "queue 1.5 ms", "made-by-server", "stop", "5"):
        assert fact in error


def test_models_are_a_table(weft_command):
    """Name, version, task, state, what to know before asking, and why a model failed."""
    code, out, _ = weft_command("models")

    assert 0 == code
    facts = (
        "en-es 1",
        "translate, ready",
        "English to Spanish.",
        "tokens: source 64, new 48",
        "attention heads by layer: 4, 4; by default layer 1",
        "begins with: 'translate: '",
        "translates into: es, pt",
        "topics 2",
        "classify_text, failed",
        "digest differs",
    )
    assert [] == [fact for fact in facts if fact not in out]
    assert 1 == out.count("attention")


def test_a_model_says_what_stands_before_a_text_and_where_it_is_cut(capsys):
    """Prompts by name, if one of them is a text."""
    prompts = (weft.Prompt("query", "query: "), weft.Prompt("plain", ""))
    model = replace(_answers.model(MODELS[0]), prompts=prompts, truncation_side=weft.TruncationSide.LEFT)
    model_table([replace(model, default_prompt_name="query")])
    out = " ".join(capsys.readouterr().out.split())
    assert "prompts: query 'query: ', plain ''; by default query" in out
    assert "cuts a text that is too long on the left" in out
    model_table([model, replace(model, prompts=prompts[1:])])
    out = capsys.readouterr().out
    assert (1, False) == (out.count("prompts: "), "by default" in out.partition("prompts: ")[2].partition("\n")[0])


def test_a_model_says_which_words_of_a_question_it_knows(capsys):
    """Those that stand for a sentence."""
    forms = (weft.QuestionForm("<OCR>", "What is the text?"), weft.QuestionForm("<CAPTION>", "What is it?"))
    model_table([replace(_answers.model(MODELS[0]), question_forms=forms)])
    assert "questions by a word: <OCR>, <CAPTION>" in " ".join(capsys.readouterr().out.split())


def test_a_model_says_in_what_it_computes_and_how_large_it_is(capsys):
    """And on what, where that is not the processor. One that is not loaded has told no size."""
    model = replace(_answers.model(MODELS[0]), precision="fp16", devices=("cuda:0",), size_bytes=1_234_500_000)
    for each, expected in (
        (model, "precision: fp16, on cuda:0, 1,234.5 MB"),
        (replace(model, devices=("cpu",), size_bytes=3_900_000), "precision: fp16, 3.9 MB"),
        (replace(model, devices=(), size_bytes=0), "precision: fp16"),
    ):
        model_table([each])
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert [expected] == [line[line.index("precision") :] for line in lines if "precision" in line]


def test_a_model_that_hears_says_for_how_long(capsys):
    """At once, and in all. That it gives one output goes without saying."""
    model = _answers.model(MODELS[0])
    limits = replace(model.limits, window_s=3.2, max_audio_s=600, max_beams=4, max_outputs=1)
    model_table([replace(model, task=weft.Task.TRANSCRIBE, limits=limits)])
    out = capsys.readouterr().out

    assert "hears 3.2 s at once, of at most 600 s" in out
    assert "at most 4 beams" in out
    assert "output" not in out


def test_health_is_an_exit_code(weft_command, server):
    """0 while the server serves, 1 when it does not or is not there."""
    assert (0, "serving\n", "") == weft_command("health")
    assert (0, "serving\n", "") == weft_command("health", "--wait", "--timeout", "5")
    server.set_health("", serving=False)
    assert (1, "not_serving\n", "") == weft_command("health")
    assert 1 == weft_command("health", "-t", "127.0.0.1:1")[0]
    assert 1 == weft_command("health", "no.such.Service")[0]


REFUSED = [
    (Failure(StatusCode.INVALID_ARGUMENT, "EMPTY_INPUT", "text: must not be empty"), 2, "text: must not be empty"),
    (Failure(StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", "no model 'x'"), 1, "no model 'x'"),
    (Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.5), 1, "full (try again in 0.5 s)"),
    (Failure(StatusCode.INTERNAL, "BUG", "internal error 7f", error_id="7f"), 1, "internal error 7f"),
    (Failure(StatusCode.INTERNAL, "BUG", "two\nlines \x1b[31m", after=0), 1, "two lines  [31m"),
]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
@pytest.mark.parametrize(("failure", "code", "line"), REFUSED)
def test_an_error_is_one_line(weft_command, server, failure, code, line, stream):
    """What the server refuses is one line on stderr, without control characters; the exit code says whose fault."""
    server.servicer.script.append(failure)

    assert (code, "", f"weft: {line}\n") == weft_command("generate", "a", *stream)


WRONG_USAGE = [
    (["generate"], 2),
    (["generate", "a", "--chat", "b"], 2),
    (["generate", "a", "--system", "b"], 2),
    (["generate", "a", "--nope"], 2),
    (["nope"], 2),
    (["classify"], 2),
    (["classify", "a.png", "--text", "b"], 2),
    (["caption", "no/such.png"], 2),
    (["generate", "a", "--top-k", "x"], 2),
    (["generate", "a", "--seed", "-1"], 2),
    (["generate", "a", "--timeout", "0"], 2),
    (["generate", "\udc80"], 2),
    (["generate", "a", "-t", "127.0.0.1:1"], 1),
]


@pytest.mark.parametrize(("argv", "code"), WRONG_USAGE)
def test_wrong_usage_is_one_line(weft_command, argv, code):
    """A misspelt command, a missing file, a number out of range: one line, exit code 2; no server: 1."""
    got, out, error = weft_command(*argv)

    assert (code, "") == (got, out)
    assert error.startswith("weft: ")
    assert 1 == error.count("\n")


def test_a_bug_is_one_line_too(weft_command, monkeypatch):
    """Even what should never happen shows no traceback, but says where it was."""
    monkeypatch.setattr("weft._show.emit", lambda *_: 1 / 0)
    code, _, error = weft_command("generate", "a")

    assert 1 == code
    assert error.startswith("weft: ZeroDivisionError: division by zero (test_cli.py:")
    assert error.endswith("This is a bug.\n")


def test_help_lists_every_command(weft_command):
    """--help, and no argument at all, list the client's commands and those of the other packages."""
    for argv in ([], ["--help"]):
        code, out, _ = weft_command(*argv)
        assert 0 == code
        for name in (
            "translate",
            "caption",
            "classify",
            "tag",
            "generate",
            "embed",
            "models",
            "health",
            "bench",
            "plan",
            "serve",
            "export",
            "train",
        ):
            assert name in out


def test_what_is_no_file_is_not_read(weft_command, tmp_path):
    """A pipe or a device may never end: it is refused."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for path in (fifo, "/dev/zero"):
        code, _, error = weft_command("caption", path)
        assert (2, f"weft: the picture: {path} is not a regular file\n") == (code, error)


@pytest.mark.parametrize("columns", ["80", "50"])
@pytest.mark.parametrize(
    "command", ["translate", "caption", "classify", "tag", "generate", "embed", "models", "health", "bench"]
)
def test_help_is_whole(weft_command, monkeypatch, command, columns):
    """Nothing of it is cut or dropped, however narrow: each option with its type and range, defaults, variables."""
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = weft_command(command, "--help")
    flat = " ".join(out.split())
    assert 0 == code
    assert "\u2026" not in out
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "-t, --target HOST:PORT Where the server is. [env var: WEFT_TARGET; default: localhost:7070]" in flat
    assert "--timeout SECONDS How long to wait for the answer. [default: 60.0]" in flat
    commands = typer.main.get_command(cli.app).commands | {"bench": typer.main.get_command(bench)}
    for option in commands[command].params:
        assert option.name == "help" or option.opts[0] in flat or option.name in flat
    if command in {"translate", "caption", "generate"}:
        drawn = "How randomly tokens are drawn. 0 always takes the most probable token."
        assert f"--temperature <float range> {drawn} [0.0<=x<=10.0]" in flat
        assert "--max-new-tokens <int range> Stop after this number of tokens. [x>=1]" in flat


def test_help_has_sections(weft_command):
    """Arguments come first, under their own heading. What has no group stands under Options."""
    sections = weft_command("translate", "--help")[1].split("\n\n")[3:]
    assert ["Arguments", "Options"] == [section.partition(":")[0] for section in sections[:2]]
    assert ["text", "<str>"] == sections[0].split()[1:3]
    assert "--help " in sections[1]


@pytest.mark.parametrize("columns", ["80", "50"])
@pytest.mark.parametrize("words", [[], ["models"]])
def test_the_list_of_commands_is_whole(weft_command, monkeypatch, columns, words):
    """Of each the whole first sentence."""
    monkeypatch.setenv("COLUMNS", columns)
    listed = weft_command(*words, "--help")[1].partition("Commands:")[2]
    commands = typer.main.get_command(cli.app).commands
    for each in (commands["models"].commands if words else commands).values():
        assert " ".join(each.help.split("\n\n")[0].split()) in " ".join(listed.split())
    assert "..." not in listed
    assert max(map(len, listed.splitlines())) <= int(columns)


FLAGS = {
    "decoding.sampling.top_p must be above 0 and at most 1, not 1.5": "--top-p must be above 0 and at most 1, not 1.5",
    "request.decoding.max_new_tokens must be 1..64, not 99": "--max-new-tokens must be 1..64, not 99",
    "decoding.stop[1] must be 1..64 bytes of UTF-8": "--stop must be 1..64 bytes of UTF-8",
    "explain.head needs explain.layer": "--head needs --layer",
    "model.name is required: one of a, b": "--model is required: one of a, b",
    "image.data is not a PNG, JPEG or WebP picture": "the picture is not a PNG, JPEG or WebP picture",
    "audio.data is not a WAV or FLAC file": "the recording is not a WAV or FLAC file",
    "top_k must be 1..5, not 9": "--top must be 1..5, not 9",
    "target_language must be one of de, not 'model.name'": "--target-language must be one of de, not 'model.name'",
    "text must not be empty": "text must not be empty",
}


@pytest.mark.parametrize("said", FLAGS)
def test_a_refusal_names_what_was_typed(weft_command, server, said):
    """A field of the wire is told by its flag."""
    server.servicer.script.append(Failure(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", said))
    assert (2, "", f"weft: {FLAGS[said]}\n") == weft_command("generate", "a")


def test_a_field_that_has_no_form_on_the_wire_is_told_by_its_flag(weft_command):
    """What the SDK refuses itself, too."""
    code, _, err = weft_command("generate", "a", "--seed", 2**64)
    assert 2 == code
    assert err.startswith("weft: --seed: ")


def test_no_temperature_is_greedy(weft_command, server):
    """`--temperature 0` asks for the most probable token at each step, whatever else is given."""
    weft_command("generate", "a", "--temperature", "0", "--seed", "7")
    assert "greedy" == server.servicer.seen[0].request.decoding.WhichOneof("strategy")


def test_without_a_server_there_is_a_way_to_one(weft_command):
    """The line says how to start one and how to name another."""
    code, _, err = weft_command("models", "-t", "127.0.0.1:1")
    assert 1 == code
    assert err.endswith("Connection refused. Is a server there? `weft serve` starts one; --target names another.\n")


def test_a_mark_of_order_on_stdin_is_no_text(weft_command, monkeypatch):
    """What editors of Windows put before a text does not reach the model."""
    feed(monkeypatch, b"\xef\xbb\xbfa b\n")
    assert (0, "b a\n") == weft_command("translate", "-")[:2]


def test_a_text_without_quotes_is_told_about_them(weft_command):
    """The shell made several words of it; of other verbs the advice stays."""
    for verb in ("translate", "tag", "generate"):
        assert (2, "", "weft: put a text of several words in quotes\n") == weft_command(verb, "we", "are", "eating")
    assert weft_command("health", "all", "models")[2].endswith("(models). Try --help.\n")


def test_a_wrong_usage_ends_in_a_full_stop(weft_command):
    """Before the advice to ask for help."""
    err = weft_command("generate", "a", "--temperature", "11")[2]
    assert err.endswith("10. Try --help.\n")
