"""Each task through the real process and the SDK, cancelled and late too; some by Triton's client."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import grpc
import pytest

import weft
from process import ServerProcess

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
SENTENCE = "we are eating bread"
PROMPT = "Return a list of"


def slots_used(server):
    """Decode slots held over all models."""
    return server.metric("weft_decode_slots_used")


def test_translate(client):
    """The sentence of the README, with its parts: text, tokens, scores, usage, timings, the alignment."""
    answer = client.translate(SENTENCE, return_scores=True, explain=True)

    assert "estamos comiendo pan" == answer.text
    assert answer.finish_reason is weft.FinishReason.STOP
    assert len(answer.token_log_probs) == len(answer.token_ids) == answer.usage.output_tokens
    assert all(score <= 0 for score in answer.token_log_probs)
    assert answer.tokens == answer.alignment.target_tokens
    assert () == client.translate(SENTENCE).tokens
    assert answer.usage.input_tokens == len(answer.alignment.source_tokens)
    assert len(answer.alignment.target_tokens) == len(answer.token_ids)
    assert all(pytest.approx(1, abs=1e-5) == sum(row) for row in answer.alignment.weights)
    assert answer.timings.prefill > 0
    assert weft.ResolvedModel("en-es", 1) == answer.model


def test_tokens_are_those_that_each_task_counts(client, scene):
    """Of each model that reads or writes text. The ids of an answer say its text."""
    texts = {
        "en-es": (client.translate, SENTENCE),
        "pydocs": (client.generate, PROMPT),
        "topics": (client.classify, "Open a TCP connection to the server."),
        "tags": (client.tag, "Maria Silva sent 25 euros to Lisbon on Monday. 🙂"),
    }
    for model, (ask, text) in texts.items():
        cut = client.tokenize(text, model=model)
        assert ask(text).usage.input_tokens == cut.num_tokens == len(cut.tokens)
        assert cut.num_tokens == client.tokenize(text, model=model, count_only=True).num_tokens
        assert weft.ResolvedModel(model, 1) == cut.model
    said = [client.translate(SENTENCE), client.caption(scene), client.generate(PROMPT)]
    for answer in said:
        back = client.detokenize(answer.token_ids, model=answer.model.name)
        assert answer.text == back.text
    cut = client.tokenize(said[0].text, model="en-es", side="output")
    assert said[0].token_ids == cut.token_ids
    assert said[0].usage.output_tokens == cut.num_tokens
    with pytest.raises(weft.InvalidRequest, match="has no tokenizer"):
        client.tokenize("7", model="digits")


def test_caption(client, scene):
    """A caption streams to what it is at once, and its alignment covers the patch grid."""
    answer = client.caption(scene, explain=True)
    with client.stream_caption(scene) as stream:
        text = "".join(stream)

    assert text == answer.text == stream.result.text
    assert len(answer.alignment.weights[0]) == answer.alignment.grid_rows * answer.alignment.grid_columns


ASKED = sorted((Path(__file__).parents[2] / "export" / "checkpoints" / "scenes-answers" / "examples").glob("*.png"))


def test_answer(client):
    """An answer to a question streams to what it is at once, and its heat covers the picture, not the question."""
    question = "what is left of the purple triangle?"
    answer = client.answer(ASKED[0], question, explain=True)
    with client.stream_answer(ASKED[0], question) as stream:
        text = "".join(stream)

    assert "a small green square" == answer.text == text == stream.result.text
    cells = answer.alignment.grid_rows * answer.alignment.grid_columns
    assert [cells] * len(answer.token_ids) == [len(row) for row in answer.alignment.weights]
    assert cells + client.tokenize(question, model="scenes-answers").num_tokens == answer.usage.input_tokens


SPOKEN = sorted((Path(__file__).parents[2] / "export" / "checkpoints" / "commands" / "examples").glob("*.wav"))


@pytest.mark.parametrize("recording", SPOKEN, ids=[path.stem for path in SPOKEN])
def test_transcribe(client, recording):
    """What is said is heard, and when each word is: one behind the other, within the recording. No bit of it is new."""
    answer = client.transcribe(recording, explain=True)

    assert recording.stem.replace("-", " ") == answer.text == " ".join(word.text for word in answer.words)
    assert answer.alignment.target_tokens == tuple(word.text for word in answer.words)
    times = [time for word in answer.words for time in (word.start_s, word.end_s)]
    assert sorted(times) == times
    assert times[0] >= 0
    assert times[-1] <= answer.duration_s
    assert all(word.start_s < word.end_s for word in answer.words)
    asked = {"timestamps": True, "explain": True}
    assert answer.text.split() == [word.text for word in client.transcribe(recording, **asked).words]


def test_a_transcription_is_scored(client):
    """What was said is more probable than what was not, and as probable as when it was produced."""
    recording = SPOKEN[0]
    said = client.transcribe(recording, return_scores=True)
    scored = client.score(recording, said.text, model="commands")

    assert said.token_ids == scored.token_ids
    assert scored.token_log_probs == pytest.approx(said.token_log_probs, abs=1e-4)
    assert scored.total > client.score(recording, "turn on the light", model="commands").total


def test_classify_image(client, digit):
    """A handwritten digit is read, and all labels together weigh 1."""
    picture, label = digit
    answer = client.classify(image=picture, top_k=10)

    assert label == answer.labels[0].label
    assert pytest.approx(1, abs=1e-4) == sum(each.score for each in answer.labels)


def test_tag(client):
    """Spans stand where they say they stand, and their tokens have places of their own."""
    text = "Maria Silva sent 25 euros to Lisbon on Monday."
    answer = client.tag(text)

    assert answer.spans
    assert all(text[span.start : span.end] == span.text for span in answer.spans)
    assert all(0 <= token.start <= token.end <= len(text) for token in answer.tokens)
    assert weft.ResolvedModel("tags", 1) == answer.model


def test_classify_text(client):
    """Labels come most probable first."""
    answer = client.classify(text="Open a TCP connection to the server and send the request.")

    scores = [each.score for each in answer.labels]
    assert sorted(scores, reverse=True) == scores


def test_generate_streams_to_what_it_answers_at_once(client):
    """Greedy and sampled with one seed: deltas joined are the final text, which is the unary text."""
    for strategy in (weft.Greedy(), weft.Sampling(temperature=0.9, top_p=0.9, seed=7)):
        decoding = weft.Decoding(max_new_tokens=40, min_new_tokens=20, strategy=strategy)
        whole = client.generate(PROMPT, decoding=decoding)
        with client.stream_generate(PROMPT, decoding=decoding) as stream:
            deltas = list(stream)

        assert whole.text == "".join(deltas) == stream.result.text
        assert whole.token_ids == stream.result.token_ids


def test_a_stop_string_ends_the_text_before_it(client):
    """Unary and streaming agree, and nothing of the stop string is sent."""
    whole = client.generate(PROMPT, decoding=weft.Decoding(max_new_tokens=60, min_new_tokens=60))
    stop = whole.text[10:14]
    decoding = weft.Decoding(max_new_tokens=60, min_new_tokens=60, stop=(stop,))
    cut = client.generate(PROMPT, decoding=decoding)
    with client.stream_generate(PROMPT, decoding=decoding) as stream:
        streamed = "".join(stream)

    assert cut.finish_reason is stream.result.finish_reason is weft.FinishReason.STOP_STRING
    assert whole.text[: whole.text.index(stop)] == cut.text == streamed
    assert whole.token_ids[: len(cut.token_ids)] == cut.token_ids == stream.result.token_ids


def test_token_ids_are_taken_where_text_is(client):
    """The ids of a prompt give what its text gives."""
    whole = client.generate(PROMPT, decoding=weft.Decoding(max_new_tokens=5))
    again = client.generate(list(whole.token_ids), decoding=weft.Decoding(max_new_tokens=5))

    assert len(whole.token_ids) == again.usage.input_tokens


def test_asyncio_does_it_all_at_once(server, scene, digit):
    """The asyncio client, every task together."""

    async def run():
        async with weft.AsyncClient(server.target, timeout=30) as client:
            stream = client.stream_generate(PROMPT, decoding=weft.Decoding(max_new_tokens=20))
            translation, caption, label, topic = await asyncio.gather(
                client.translate(SENTENCE),
                client.caption(scene),
                client.classify(image=digit[0]),
                client.classify(text="Return the square root."),
            )
            async with stream:
                text = "".join([delta async for delta in stream])
            assert "estamos comiendo pan" == translation.text
            assert caption.text
            assert digit[1] == label.labels[0].label
            assert topic.labels
            assert text == stream.result.text

    asyncio.run(run())


def test_a_stream_cancelled_midway_frees_its_slot(server, client):
    """After the first delta the caller leaves: the slot is free at once, and the metrics say why."""
    before = server.metric("weft_cancelled_total", stage="decode")
    decoding = weft.Decoding(max_new_tokens=200, min_new_tokens=200)

    def is_counted():
        # Once more if need be: of a caller who was held up before they left, all tokens may be written.
        with client.stream_generate("a", decoding=decoding) as stream:
            next(stream)
            stream.cancel()
        server.wait_until(lambda: slots_used(server) == 0, what="a free slot")
        return server.metric("weft_cancelled_total", stage="decode") > before

    server.wait_until(is_counted, what="the count")


def test_a_deadline_ends_the_call_and_frees_the_slot(server, client):
    """A caller in a hurry gets DeadlineExceeded, and nothing is left behind."""
    with pytest.raises(weft.DeadlineExceeded):
        client.generate("a", decoding=weft.Decoding(max_new_tokens=200, min_new_tokens=200), timeout=0.005)

    server.wait_until(lambda: slots_used(server) == 0, what="a free slot")
    server.wait_until(lambda: server.metric("weft_requests_running") == 0, what="nothing running")


def test_models_and_health_tell_what_there_is(client):
    """Eight ready models with their limits; health by server, service and model."""
    models = {model.name: model for model in client.list_models()}

    assert {"commands", "en-es", "scenes", "scenes-answers", "digits", "topics", "pydocs", "tags"} == set(models)
    assert all(model.state is weft.ModelState.READY for model in models.values())
    assert ("en",) == models["en-es"].source_languages
    assert models["digits"].limits.max_image_bytes > 0
    assert client.get_model("pydocs").limits.max_total_tokens > 0
    for service in ("", "live", "weft.v1.GenerationService", "model/en-es"):
        assert client.health(service) is weft.Health.SERVING
    with pytest.raises(weft.NotFound):
        client.health("model/nope")


def test_probes_and_metrics_answer_over_http(server):
    """/livez, /readyz and /metrics are 200, anything else 404."""
    assert [200, 200, 200, 404] == [server.get(path)[0] for path in ("/livez", "/readyz", "/metrics", "/else")]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_names_every_service(server, version):
    """Behind its flag, reflection lists our services and defines them, so that grpcurl needs no proto files."""
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

    asked = ServerReflectionRequest(list_services=""), ServerReflectionRequest(file_containing_symbol="weft.v1.Image")
    with grpc.insecure_channel(server.target) as channel:
        ask = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        services, files = ask(iter(asked), timeout=10)

    names = {service.name for service in services.list_services_response.service}
    ours = {f"weft.v1.{name}Service" for name in ("Translation", "Caption", "Classification", "Generation", "Model")}
    assert ours | {"grpc.health.v1.Health", "inference.GRPCInferenceService"} <= names
    assert b"weft_proto/v1/common.proto" in b"".join(files.file_descriptor_response.file_descriptor_proto)


def test_tritonclient_finds_what_the_page_says(server):
    """Its program prints what stands below it. In a process of its own: both have messages of the same names."""
    page = (ROOT / "docs/other-languages.md").read_text()
    program, below = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", page, re.DOTALL).groups()
    environment = os.environ | {"WEFT_TARGET": server.target}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (0, textwrap.dedent(below)) == (ran.returncode, ran.stdout), ran.stderr


def test_proving_itself_is_in_no_figure(demo_repository):
    """A server that has just become ready has timed and counted nothing for anybody."""
    with ServerProcess(demo_repository) as fresh:
        fresh.wait_for("ready")
        figures = {
            name: value
            for (name, labels), value in fresh.metrics().items()
            if name.startswith("weft_")
            and name.endswith(("_count", "_sum", "_total"))
            and "loads" not in name
            and value
        }
    assert {} == figures


def test_a_drawn_seed_is_a_number_of_every_language(client):
    """Seeds that the server draws fit a double exactly, and asked for again they give the same answer."""
    drawn = [client.generate("def", decoding=weft.Decoding(strategy=weft.Sampling(temperature=1.0))) for _ in range(20)]
    seeds = [answer.decoding.strategy.seed for answer in drawn]
    assert [int(float(seed)) for seed in seeds] == seeds
    assert max(seeds) < 1 << 53
    again = weft.Sampling(temperature=1.0, seed=int(float(seeds[0])))
    assert drawn[0].token_ids == client.generate("def", decoding=weft.Decoding(strategy=again)).token_ids
