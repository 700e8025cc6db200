"""Many inputs against a real server: settings of decoding by the SDK, files by the command, a queue that is full."""

import asyncio
import json
import signal
import subprocess

import pytest

import weft
from process import ServerProcess
from terminal import WEFT
from waiting import until

pytestmark = pytest.mark.e2e
SENTENCES = ["we are eating bread", "the old women are not buying cheap apples", "the cat eats"]
MANY = SENTENCES * 40


def test_beams_bring_several_answers(client):
    """Best first, with their scores; the best is the one that is asked for alone."""
    decoding = weft.Decoding(strategy=weft.Beams(4), num_outputs=3)
    answer = client.translate(SENTENCES[1], decoding=decoding, return_scores=True, num_top_tokens=2)
    scores = [answer.score, *(other.score for other in answer.others)]

    assert 3 == len({answer.text, *(other.text for other in answer.others)})
    assert sorted(scores, reverse=True) == scores
    assert pytest.approx(sum(answer.token_log_probs) / len(answer.token_log_probs), abs=1e-4) == answer.score
    assert len(answer.token_ids) == len(answer.top_tokens)
    assert {2} == {len(top) for top in answer.top_tokens}
    assert answer.text == client.translate(SENTENCES[1], decoding=weft.Decoding(strategy=weft.Beams(4))).text


def test_an_answer_fits(client):
    """One of the choices, what the expression matches, and JSON; what cannot be read is refused in words."""
    chosen = client.generate("Open a file and", decoding=weft.Decoding(choices=(" close it.", " read it.")))
    matched = client.generate("Open a file and", decoding=weft.Decoding(regex=r" [a-z]+ the [a-z]+\."))
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    fitting = client.generate(
        "Open a file and", decoding=weft.Decoding(json_schema=schema, banned=("\n", "\t"), max_new_tokens=200)
    )

    assert chosen.text in {" close it.", " read it."}
    assert matched.text.endswith(".")
    assert " the " in matched.text
    assert weft.FinishReason.STOP == fitting.finish_reason
    assert json.loads(fitting.text)["n"] in {1, 2}
    with pytest.raises(weft.InvalidRequest) as caught:
        client.generate("a", decoding=weft.Decoding(regex="("))
    assert "CONSTRAINT_REFUSED" == caught.value.reason


def test_an_answers_decoding_is_taken_again(client):
    """What an answer says of its decoding asks for the same again, as it is and through JSON."""
    asked = weft.Decoding(
        strategy=weft.Beams(3, 0.5, weft.EarlyStopping.FULL), num_outputs=2, repetition_penalty=1.5, banned=("queso",)
    )
    first = client.translate(SENTENCES[0], decoding=asked)
    again = client.translate(SENTENCES[0], decoding=first.decoding)

    assert (first.text, first.others, first.decoding) == (again.text, again.others, again.decoding)
    assert asked.strategy == first.decoding.strategy


def test_many_inputs_are_answered_as_one_by_one(server, client):
    """Bit for bit, scores included, in both clients."""
    single = {text: client.translate(text, return_scores=True) for text in SENTENCES}

    async def run():
        async with weft.AsyncClient(server.target, timeout=60) as waiting:
            many = waiting.translate_many(MANY, concurrency=32, return_scores=True)
            return [answer async for answer in many.or_raise()]

    for found in (list(client.translate_many(MANY, return_scores=True).or_raise()), asyncio.run(run())):
        assert [single[text].text for text in MANY] == [answer.text for answer in found]
        assert [single[text].token_log_probs for text in MANY] == [answer.token_log_probs for answer in found]


def test_many_pairs_are_scored_as_one_by_one(server, client, tmp_path):
    """Bit for bit, in both clients, and from a file; the answer that the model gives is the most probable one."""
    answers = [client.translate(text, return_scores=True) for text in SENTENCES]
    pairs = [(text, answer.text) for text in SENTENCES for answer in answers] * 5
    alone = {pair: client.score(*pair, model="en-es") for pair in pairs}

    async def run():
        async with weft.AsyncClient(server.target, timeout=60) as waiting:
            many = waiting.score_many(pairs, concurrency=32, model="en-es")
            return [score async for score in many.or_raise()]

    for found in (list(client.score_many(pairs, model="en-es").or_raise()), asyncio.run(run())):
        assert [alone[pair].token_log_probs for pair in pairs] == [score.token_log_probs for score in found]
    for text, answer in zip(SENTENCES, answers, strict=True):
        assert answer.text == max((pair for pair in pairs if pair[0] == text), key=lambda pair: alone[pair].total)[1]

    source, out = tmp_path / "pairs.tsv", tmp_path / "scores.txt"
    source.write_text("".join(f"{text}\t{target}\n" for text, target in pairs))
    argv = [*WEFT, "score", "--file", source, "--out", out, "--model", "en-es", "-t", server.target]
    subprocess.run(argv, check=True)
    assert [f"{alone[pair].total:.4f}" for pair in pairs] == out.read_text().splitlines()


@pytest.mark.slow
def test_a_full_queue_and_a_killed_server_lose_no_line(demo_repository, tmp_path):
    """A run over a server with room for one waiting request, which is killed and comes back: each line, once."""
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"{text}\n" for text in MANY))
    repository, settings = tmp_path / "models", {"max_queued_requests": 1, "slots": 4}
    repository.mkdir()
    (repository / "en-es").symlink_to(demo_repository / "en-es")
    with ServerProcess(repository, **settings) as server:
        server.wait_for("ready")
        port = server.target.rpartition(":")[2]
        with weft.Client(server.target) as client:
            expected = {text: client.translate(text).text for text in SENTENCES}
        argv = [*WEFT, "translate", "--file", source, "--out", out, "-t", server.target, "--concurrency", "24"]
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        asyncio.run(until(lambda: out.exists() and 5 <= out.read_bytes().count(b"\n")))
        server.process.send_signal(signal.SIGKILL)
    with ServerProcess(repository, port=port, **settings):
        _, error = process.communicate(timeout=120)

    assert 0 == process.returncode, error
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [expected[text] for text in MANY] == [answer["text"] for answer in answers]
    assert f"weft: {len(MANY)} lines: {len(MANY)} answered; " in error


def test_a_model_that_is_not_there_fails_each_line(server, tmp_path):
    """With the error as an object, so that every line has its place."""
    source = tmp_path / "in.jsonl"
    source.write_text('"we are eating bread"\n{"text": "the cat eats", "model": "nope"}\n')
    argv = [*WEFT, "translate", "--file", source, "-t", server.target, "--jsonl"]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    first, second = map(json.loads, run.stdout.splitlines())

    assert (1, "estamos comiendo pan") == (run.returncode, first["text"])
    assert ("NOT_FOUND", "MODEL_NOT_FOUND") == (second["error"]["code"], second["error"]["reason"])
