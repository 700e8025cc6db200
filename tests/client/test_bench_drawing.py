"""What a load is made of before it is sent: lengths, arrivals, inputs, requests."""

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

import weft
from fakes import MODELS
from weft import _answers
from weft_bench.arrivals import Closed, Open, parse_sweep
from weft_bench.asking import make_requests
from weft_bench.inputs import Kind, kind_of, read_files, read_texts
from weft_bench.lengths import LogNormal, Uniform, parse_lengths
from weft_bench.workload import Workload
from weft_proto.v1 import (
    answer_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    transcription_pb2,
    translation_pb2,
)

EN_ES = _answers.model(MODELS[0])
PROSE = _answers.model(
    model_pb2.Model(
        name="prose",
        version=1,
        task=common_pb2.TASK_GENERATE,
        state=model_pb2.MODEL_STATE_READY,
        limits=model_pb2.Limits(max_prompt_tokens=100, max_new_tokens=100, max_total_tokens=128),
        vocab_size=50,
    )
)


def drawn(lengths, limit=10_000, count=4000):
    """Many lengths, in order."""
    random = Random(1)
    return sorted(lengths.draw(random, limit) for _ in range(count))


def test_a_range_is_drawn_evenly_and_whole():
    """Every length of a range occurs, its ends too, and none beyond; a number is a range of one."""
    found = drawn(parse_lengths("--x", "8..12"))

    assert {8, 9, 10, 11, 12} == set(found)
    assert all(700 < found.count(length) < 900 for length in set(found))
    assert {64} == set(drawn(parse_lengths("--x", "64")))


def test_a_log_normal_has_its_median_and_its_spread():
    """Half of the lengths lie under the median, 84 % under exp(sigma) times it, and none over the limit."""
    found = drawn(parse_lengths("--x", "lognormal:64,0.5"))

    assert pytest.approx(64, abs=3) == found[len(found) // 2]
    assert pytest.approx(64 * 1.6487, rel=0.06) == found[int(0.841 * len(found))]
    assert 70 >= drawn(LogNormal(64, 0.5), limit=70)[-1]


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-3",
        "0..4",
        "9..8",
        "8..",
        "..8",
        "a",
        "",
        "1.5",
        "lognormal:0,1",
        "lognormal:8,99",
        "lognormal:8",
        "lognormal:8,-1",
    ],
)
def test_a_wrong_length_names_its_option(text):
    """What is no length is an InvalidRequest that begins with the option."""
    with pytest.raises(weft.InvalidRequest, match=r"^--x: "):
        parse_lengths("--x", text)


def test_arrivals_are_poisson():
    """Gaps are exponential: their mean is 1 / rate, and as large their deviation; the same seed gives the same."""
    times = list(islice(Open(50.0).due(Random(3)), 5000))
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)

    assert pytest.approx(0.02, rel=0.05) == mean
    assert pytest.approx(mean, rel=0.08) == (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert times == list(islice(Open(50.0).due(Random(3)), 5000))


def test_a_sweep_is_of_concurrencies_or_rates():
    """Plain numbers are callers of a closed loop; after `rate:` they are requests a second."""
    assert [Closed(1), Closed(8)] == parse_sweep("1,8")
    assert [Open(0.5), Open(20.0)] == parse_sweep("rate:0.5,20")
    for text in ("", "1,", "0", "1.5", "-1", "rate:", "rate:0", "rate:-1", "rate:inf", "1,a", "1 2"):
        with pytest.raises(weft.InvalidRequest, match="--sweep"):
            parse_sweep(text)


def test_lines_are_texts(tmp_path):
    """Each line of a text file is a text; of a .jsonl file a string, token ids, or an object with either."""
    plain, lines = tmp_path / "a.txt", tmp_path / "b.JSONL"
    plain.write_text("\ufeffwe are\nñ\u2028x\n", encoding="utf-8")  # as some editors begin a file
    lines.write_text('"a b"\n[1, 2]\n{"text": "c"}\n{"token_ids": [3], "more": 0}\n')

    assert ["we are", "ñ\u2028x", "a b", [1, 2], "c", [3]] == read_texts((plain, lines))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.txt", b"one\n\ntwo\n", "line 2: is empty"),
        ("a.txt", b"one\n \n", "line 2: is empty"),
        ("a.txt", b"", "line 1: is empty"),
        ("a.txt", b"\xff", "not UTF-8 at byte 0"),
        ("a.jsonl", b'"a"\n{\n', "line 2"),
        ("a.jsonl", b"[" * 100_000, "line 1"),
        ("a.jsonl", b'{"prompt": "a"}', "line 1: must hold a text"),
        ("a.jsonl", b'""', "line 1: must hold a text"),
        ("a.jsonl", b"[]", "line 1: must hold a text"),
        ("a.jsonl", b"[1, -1]", "line 1: must hold a text"),
        ("a.jsonl", b"[true]", "line 1: must hold a text"),
    ],
)
def test_a_line_that_holds_nothing_is_named(tmp_path, name, content, complaint):
    """File and line stand in the error."""
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(weft.InvalidRequest, match=complaint) as caught:
        read_texts((path,))
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("kind", "first", "second", "alone"),
    [(Kind.PICTURES, "a.JPG", "b.png", "z.webp"), (Kind.RECORDINGS, "a.WAV", "b.flac", "z.wav")],
)
def test_files_are_named_or_those_of_a_folder(kind, first, second, alone, tmp_path):
    """A folder gives its pictures or recordings by name and nothing else; an empty one, or a missing file, is wrong."""
    folder, other = tmp_path / "inputs", tmp_path / alone
    folder.mkdir()
    with pytest.raises(weft.InvalidRequest, match="holds no picture and no recording"):
        kind_of((folder,))
    for name in (second, first, "notes.txt"):
        (folder / name).write_bytes(name.encode())
    other.write_bytes(b"z")

    assert [first.encode(), second.encode(), b"z"] == read_files((folder, other))
    assert kind is kind_of((folder, other))
    with pytest.raises(weft.InvalidRequest, match="cannot read"):
        read_files((tmp_path / f"no{Path(alone).suffix}",))
    with pytest.raises(weft.InvalidRequest, match=f"give only one of {kind}, texts"):
        kind_of((folder, tmp_path / "a.txt"))


def test_what_is_no_file_is_not_read(tmp_path):
    """A pipe or a device may never end: it is refused."""
    for name, read in (("pipe.txt", read_texts), ("pipe.png", read_files)):
        os.mkfifo(tmp_path / name)
        with pytest.raises(weft.InvalidRequest, match="not a regular file"):
            read((tmp_path / name,))


def sent(model, kind, **options):
    """What a workload sends, as messages."""
    workload = Workload(**options)
    method = workload.method(model)
    return [kind.FromString(each.payload) for each in make_requests(workload, model, method)]


def asked(model, stream, **options):
    """The requests in the messages of a workload whose answers are streams."""
    return [each.request for each in sent(model, stream, **options)]


def test_forced_answers_have_the_length_that_was_drawn():
    """max_new_tokens is drawn from the distribution, and the end is kept out of all tokens but the last."""
    kind = translation_pb2.StreamTranslateRequest
    decodings = [each.decoding for each in asked(EN_ES, kind, output_tokens=Uniform(4, 8))]

    assert {4, 5, 6, 7, 8} == {each.max_new_tokens for each in decodings}
    assert {1} == {each.max_new_tokens - each.min_new_tokens for each in decodings}
    free = asked(EN_ES, kind, output_tokens=Uniform(4, 8), forced=False)
    assert not any(each.decoding.HasField("min_new_tokens") for each in free)
    assert not any(each.HasField("decoding") for each in asked(EN_ES, kind))


def test_drawn_ids_are_the_models():
    """Ids lie in the vocabulary, lengths in the range; the same seed makes the same requests, another does not."""
    kind = translation_pb2.StreamTranslateRequest
    first, again, other = (asked(EN_ES, kind, input_tokens=Uniform(3, 5), seed=seed) for seed in (1, 1, 2))

    assert {3, 4, 5} == {len(each.token_ids.ids) for each in first}
    assert max(id_ for each in first for id_ in each.token_ids.ids) < EN_ES.vocab_size
    assert first == again
    assert first != other


def test_prompt_and_answer_share_their_room():
    """Of a generator, no prompt is drawn that leaves too little room for its answer, and what can't fit is refused."""
    kind = generation_pb2.StreamGenerateRequest
    made = asked(PROSE, kind, input_tokens=LogNormal(20, 1.0), output_tokens=LogNormal(40, 1.0))

    assert max(len(each.token_ids.ids) + each.decoding.max_new_tokens for each in made) <= 128
    for wrong in (
        {"output_tokens": Uniform(1, 101)},
        {"input_tokens": Uniform(64, 64), "output_tokens": Uniform(65, 65)},
    ):
        with pytest.raises(weft.InvalidRequest, match="--output-tokens: prose gives at most"):
            asked(PROSE, kind, **wrong)
    with pytest.raises(weft.InvalidRequest, match="--input-tokens: prose takes at most 100"):
        asked(PROSE, kind, input_tokens=Uniform(8, 101))


def test_inputs_of_a_file_come_in_turn(tmp_path):
    """Every line is asked, in order, and then again. Lengths of answers may be drawn, and those of inputs not."""
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(str(number)) for number in range(5)))
    texts = [each.text for each in asked(EN_ES, translation_pb2.StreamTranslateRequest, paths=(path,))]

    assert ["0", "1", "2", "3", "4"] == texts
    longer = asked(EN_ES, translation_pb2.StreamTranslateRequest, paths=(path,), output_tokens=Uniform(1, 9))
    assert ["0", "1", "2", "3", "4", "0"] == [each.text for each in longer[:6]]
    assert set(range(1, 10)) == {each.decoding.max_new_tokens for each in longer}
    with pytest.raises(weft.InvalidRequest, match="--input-tokens: with --input, lengths are those of the inputs"):
        asked(EN_ES, translation_pb2.StreamTranslateRequest, paths=(path,), input_tokens=Uniform(1, 9))


def test_recordings_are_sent_to_a_model_that_hears(tmp_path):
    """Each in turn, in the first of the model's languages; without any, or with pictures, there is nothing to send."""
    voices = replace(EN_ES, name="voices", task=weft.Task.TRANSCRIBE, source_languages=("de", "en"))
    recording, picture = tmp_path / "a.wav", tmp_path / "a.png"
    recording.write_bytes(b"sound")
    kind = transcription_pb2.StreamTranscribeRequest
    made = asked(voices, kind, paths=(recording,), output_tokens=Uniform(4, 4))

    assert 64 == len(made)
    assert {(b"sound", "de", 4)} == {(each.audio.data, each.language, each.decoding.max_new_tokens) for each in made}
    assert voices == Workload(paths=(recording,)).find((EN_ES, voices))
    assert EN_ES == Workload().find((EN_ES, voices))
    for paths, complaint in (((), "takes recordings; give files"), ((picture,), "takes recordings, not pictures")):
        with pytest.raises(weft.InvalidRequest, match=complaint):
            asked(voices, kind, paths=paths)


def test_a_question_is_asked_about_each_picture(tmp_path):
    """Of a model that answers, which without a question is not the one that is meant; no other model gets one."""
    seer = replace(EN_ES, name="seer", task=weft.Task.ANSWER, source_languages=(), target_languages=())
    looker = replace(seer, name="looker", task=weft.Task.CAPTION)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"12345")
    what = {"paths": (picture,), "question": "how many?"}
    made = asked(seer, answer_pb2.StreamAnswerRequest, **what, output_tokens=Uniform(4, 4))

    assert {(b"12345", "how many?", 4)} == {(each.image.data, each.text, each.decoding.max_new_tokens) for each in made}
    assert seer == Workload(**what).find((EN_ES, looker, seer))
    assert looker == Workload(paths=(picture,)).find((EN_ES, looker, seer))
    for model, question, complaint in ((seer, "", "give one"), (looker, "how many?", "answers none")):
        with pytest.raises(weft.InvalidRequest, match=f"--question: .*{complaint}"):
            Workload(paths=(picture,), question=question).method(model)


def test_a_text_is_asked_about_where_ids_are_no_text(tmp_path):
    """Of a model that extracts, a question about each text. Nothing is drawn for it, nor for one that fills masks."""
    extractor = replace(PROSE, name="extractor", task=weft.Task.EXTRACT)
    path = tmp_path / "a.txt"
    path.write_text("Ann is here.\n")
    what = {"paths": (path,), "question": "who?"}
    made = sent(extractor, classification_pb2.ExtractRequest, **what)

    assert {("Ann is here.", "who?")} == {(each.context, each.question) for each in made}
    with pytest.raises(weft.InvalidRequest, match="--question: extractor answers questions"):
        Workload(paths=(path,)).method(extractor)
    filler = replace(extractor, task=weft.Task.FILL_MASK)
    for model, kind, question in (
        (extractor, classification_pb2.ExtractRequest, "who?"),
        (filler, classification_pb2.FillMaskRequest, ""),
    ):
        with pytest.raises(weft.InvalidRequest, match="--input: extractor takes texts; give files"):
            sent(model, kind, question=question)


def test_a_picture_stands_in_its_own_field(tmp_path):
    """Where a text would be the first argument. A model that matches is asked for the vector of it."""
    picture = tmp_path / "a.png"
    picture.write_bytes(b"12345")
    looker, matcher = (replace(PROSE, task=task) for task in (weft.Task.CLASSIFY_IMAGE, weft.Task.MATCH))
    classified = sent(looker, classification_pb2.ClassifyRequest, paths=(picture,))
    embedded = sent(matcher, embedding_pb2.EmbedRequest, paths=(picture,))

    assert {b"12345"} == {each.image.data for each in classified}
    assert {b"12345"} == {each.inputs[0].image.data for each in embedded}


def test_the_model_is_the_one_that_fits(tmp_path):
    """One that fits is taken, of several one must be named, and one that failed or is missing is no model."""
    models = (EN_ES, _answers.model(MODELS[1]))
    picture = tmp_path / "a.png"

    assert EN_ES == Workload().find(models)
    assert EN_ES == Workload(model="en-es").find((*models, PROSE))
    for options, complaint in [
        ({}, "several models fit; --model names one: en-es, prose"),
        ({"model": "nope"}, "the server has no nope"),
        ({"model": "en-es", "version": 3}, "the server has no en-es 3"),
        ({"model": "topics"}, "topics is failed"),
        ({"version": 1}, "--model-version needs --model"),
        ({"paths": (picture,)}, "no model of the server fits"),
    ]:
        with pytest.raises(weft.InvalidRequest, match=complaint):
            Workload(**options).find((*models, PROSE))
