"""Laws of explanations: what is read is what was asked for, it fits the answer, and who doesn't ask doesn't pay."""

import asyncio
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from samples import sample
from tiny import CHECKPOINTS

from loaded import Loaded, ask, golden_request
from waiting import until
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import CannotExplain, Draining, InvalidRequest, LaneFailed, Overloaded
from weft_server.models.explainer import AttentionChoice, Explainer, Explanation
from weft_server.telemetry.metrics import Metrics

MODELS = {name: sample(name).model for name in CHECKPOINTS}
EXPLAINED = [name for name, model in MODELS.items() if model.attention_heads]
SILENT = [name for name, model in MODELS.items() if not model.attention_heads]


def matrix(alignment):
    """Weights [rows, source] as the message holds them."""
    columns = len(alignment.source_tokens) or alignment.grid_rows * alignment.grid_columns or alignment.num_columns
    weights = np.array(alignment.weights, np.float32).reshape(-1, columns)
    assert len(alignment.target_tokens) == len(alignment.source_mass) == len(weights)
    return weights


def rows_of(model, answer):
    """What the rows of an answer's alignment stand for."""
    if model.manifest.HasField("audio"):
        assert [word.text for word in answer.words] == answer.alignment.target_tokens
        return len(answer.completion.text.split())
    if hasattr(answer, "completion"):
        return len(answer.completion.token_ids)
    if hasattr(answer, "masks"):
        return len(answer.masks)
    return answer.usage.input_tokens if TASKS[model.manifest.task].labels_tokens else 1


def columns_of(model, answer):
    """How many tokens or grid cells the source has."""
    if TASKS[model.manifest.task].takes_image:
        return model.manifest.image.grid_rows * model.manifest.image.grid_columns
    return (answer.completion if hasattr(answer, "completion") else answer).usage.input_tokens


@pytest.mark.parametrize("name", EXPLAINED)
def test_an_alignment_fits_its_answer(tiny_repository, name):
    """Its rows are the answer's, its columns the source's, each row sums to 1, and it says what was read."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            answer = await ask(model, **golden_request(model, explain=common_pb2.Explain()))
            alignment = answer.alignment
            weights = matrix(alignment)
            assert (rows_of(model, answer), columns_of(model, answer)) == weights.shape
            assert TASKS[model.manifest.task].takes_image == bool(alignment.grid_rows)
            # A query reads the whole picture, and lies nowhere on it.
            assert bool(model.sight and model.manifest.image.grid_rows) == bool(alignment.pictures)
            assert bool(model.manifest.image.shortest_edge) == alignment.HasField("image_region")
            assert model.manifest.HasField("audio") == bool(alignment.num_columns) == (alignment.column_s > 0)
            assert 1 == bool(alignment.grid_rows) + bool(alignment.num_columns) + bool(alignment.source_tokens)
            np.testing.assert_allclose(1, weights.sum(axis=1), atol=1e-5)
            assert all(0 <= mass <= 1 for mass in alignment.source_mass)
            assert TASKS[model.manifest.task].takes_question == bool(alignment.question_tokens)
            default = model.manifest.attention
            assert default.HasField("default_layer") == alignment.HasField("layer")
            assert (default.default_layer, False) == (alignment.layer, alignment.HasField("head"))
            if hasattr(answer, "labels"):
                assert [answer.labels[0].label] == alignment.target_tokens
            if TASKS[model.manifest.task].labels_tokens:
                assert alignment.source_tokens == alignment.target_tokens

    asyncio.run(run())


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_layer_is_the_average_of_its_heads(tiny_repository, name):
    """What all heads of a layer put on the source, averaged, is what the layer shows; it says what was read."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:

            async def put(**explain):
                answer = await ask(model, **golden_request(model, explain=common_pb2.Explain(**explain)))
                asked, read = common_pb2.Explain(**explain), answer.alignment
                assert (asked.layer, asked.head) == (read.layer, read.head)
                assert asked.HasField("head") == read.HasField("head")
                return matrix(read) * np.array(read.source_mass)[:, None]

            for layer, heads in enumerate(model.manifest.attention.heads):
                each = [await put(layer=layer, head=head) for head in range(heads)]
                np.testing.assert_allclose(np.mean(each, axis=0), await put(layer=layer), atol=1e-5)

    asyncio.run(run())


def test_each_layer_and_head_is_read_by_itself(tiny_repository):
    """The default, each layer and each head have weights of their own."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            asked = [{}, {"layer": 0}, {"layer": 0, "head": 0}, {"layer": 0, "head": 1}]
            answers = [await ask(model, **golden_request(model, explain=common_pb2.Explain(**each))) for each in asked]
            assert 4 == len({matrix(answer.alignment).tobytes() for answer in answers})

    asyncio.run(run())


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_layer_or_head_that_is_not_there_is_refused(tiny_repository, name):
    """The field that is wrong is named with its range, before anything is computed."""

    async def refusal(model, **explain):
        with pytest.raises(InvalidRequest) as refused:
            await ask(model, **golden_request(model, explain=common_pb2.Explain(**explain)))
        return refused.value.field, refused.value.message

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            heads = model.manifest.attention.heads
            last = len(heads) - 1
            field, message = await refusal(model, layer=last + 1)
            assert ("explain.layer", f"explain.layer must be 0..{last}, not {last + 1}") == (field, message)
            field, message = await refusal(model, layer=last, head=heads[last])
            assert "explain.head" == field
            assert f"must be 0..{heads[last] - 1} in layer {last}, not {heads[last]}" in message
            assert ("explain.head", "explain.head needs explain.layer") == await refusal(model, head=0)
            assert 0 == model.engine.stats().queued == model.metrics.prompt_tokens.value

    asyncio.run(run())


@pytest.mark.parametrize("name", SILENT)
def test_a_model_that_attends_to_nothing_cannot_explain(tiny_repository, name):
    """It says so on arrival, whatever layer is asked for, and answers who doesn't ask."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            for explain in (common_pb2.Explain(), common_pb2.Explain(layer=0)):
                with pytest.raises(CannotExplain):
                    await ask(model, **golden_request(model, explain=explain))
            answer = await ask(model, **golden_request(model))
            assert not answer.HasField("alignment")

    asyncio.run(run())


@pytest.mark.parametrize("name", EXPLAINED)
def test_only_who_asks_pays(tiny_repository, name):
    """No explain graph runs for a request that doesn't ask; one that does gets the same answer, and one run."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            runs = lambda: model.metrics.explain.snapshot()[0][-1][1]  # noqa: E731 - read again below
            plain = await ask(model, **golden_request(model))
            assert not plain.HasField("alignment")
            assert 0 == runs()
            asked = await ask(model, **golden_request(model, explain=common_pb2.Explain()))
            assert 1 == runs()
            if hasattr(plain, "completion"):
                assert plain.completion.token_ids == asked.completion.token_ids
            else:
                (field,) = {"labels", "tokens", "embeddings", "answers", "masks"} & set(
                    type(plain).DESCRIPTOR.fields_by_name
                )
                assert getattr(plain, field) == getattr(asked, field)

    asyncio.run(run())


def test_an_answer_cut_by_a_stop_string_explains_what_is_kept(tiny_repository):
    """Its rows are those of the whole answer, as far as it goes."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            request = golden_request(model, explain=common_pb2.Explain())
            whole = await ask(model, **request)
            stop = whole.completion.text[4]
            cut = await ask(model, **request, decoding=common_pb2.Decoding(stop=[stop]))
            kept = len(cut.completion.token_ids)
            assert common_pb2.FINISH_REASON_STOP_STRING == cut.completion.finish_reason
            assert 0 < kept < len(whole.completion.token_ids)
            assert whole.alignment.target_tokens[:kept] == cut.alignment.target_tokens
            np.testing.assert_allclose(matrix(whole.alignment)[:kept], matrix(cut.alignment), atol=1e-6)

    asyncio.run(run())


def test_one_new_token_is_one_row(tiny_repository):
    """Nothing but the prompt is read again when the only token is explained."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            request = golden_request(model, explain=common_pb2.Explain())
            one = await ask(model, **request, decoding=common_pb2.Decoding(max_new_tokens=1))
            whole = await ask(model, **request)
            np.testing.assert_allclose(matrix(whole.alignment)[:1], matrix(one.alignment), atol=1e-6)
            assert pytest.approx([1]) == one.alignment.source_mass  # nothing was produced before it

    asyncio.run(run())


PLAIN = {"token_ids": common_pb2.TokenIds(ids=[5, 6, 7])}
ASKS = {**PLAIN, "explain": common_pb2.Explain()}


@contextmanager
def held(model):
    """Explanations that wait until the event is set."""
    explain, go_on = model.explainer.explain, threading.Event()

    def hold(*asked):
        assert go_on.wait(30)
        return explain(*asked)

    model.explainer.explain = hold
    try:
        yield go_on
    finally:
        go_on.set()
        model.explainer.explain = explain


def test_texts_are_read_while_answers_are_explained(tiny_repository):
    """Whatever number of explanations is in progress, who doesn't ask for one is tokenized and answered."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            with held(model) as go_on:
                asked = [asyncio.create_task(ask(model, text="a cat", explain=common_pb2.Explain())) for _ in range(4)]
                await until(lambda: model.engine.stats().running == 0 and model.explainer.num_waiting == 4)
                answer = await asyncio.wait_for(ask(model, text="a cat"), 30)
                assert answer.labels
                go_on.set()
                for explained in await asyncio.gather(*asked):
                    assert explained.HasField("alignment")

    asyncio.run(run())


def test_who_asks_for_one_too_many_is_refused_at_the_door(tiny_repository):
    """A place is taken before the input is read and held to the end of the request, however many come at once."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1", max_queued_requests=3) as model:
            with held(model) as go_on:
                asked = [asyncio.create_task(ask(model, **ASKS)) for _ in range(20)]
                await until(lambda: sum(task.done() for task in asked) == 17)
                done, waiting = await asyncio.wait(asked, timeout=0.1)
                assert (17, 3) == (len(done), len(waiting))
                assert all(isinstance(task.exception(), Overloaded) for task in done)
                assert {"QUEUE_FULL"} == {task.exception().reason for task in done}
                assert (await ask(model, **PLAIN)).labels
                assert 0 == model.engine.stats().queued
                waiting.pop().cancel()
                go_on.set()
                for answer in await asyncio.gather(*waiting):
                    assert answer.HasField("alignment")
            assert (await ask(model, **ASKS)).HasField("alignment")
            assert 0 == model.explainer.num_places

    asyncio.run(run())


def test_explanations_of_one_tenant_leave_places_to_others(tiny_repository):
    """One tenant has four fifths of them. Another one finds a place, and is explained."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1", max_queued_requests=5) as model:
            with held(model) as go_on:
                asked = [asyncio.create_task(ask(model, "many", **ASKS)) for _ in range(4)]
                await until(lambda: model.explainer.num_waiting == 4)
                with pytest.raises(Overloaded) as refused:
                    await asyncio.wait_for(ask(model, "many", **ASKS), 30)
                assert "TENANT_QUEUE_FULL" == refused.value.reason
                asked.append(asyncio.create_task(ask(model, "few", **ASKS)))
                await until(lambda: model.explainer.num_waiting == 5)
                go_on.set()
                for answer in await asyncio.gather(*asked):
                    assert answer.HasField("alignment")
            assert 0 == model.explainer.num_places

    asyncio.run(run())


@pytest.mark.parametrize("name", ["tiny-text", "tiny-gpt"])
def test_a_place_is_given_back_however_the_request_ends(tiny_repository, name):
    """Refused for its input or failed, a request that asked leaves no place taken."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            for wrong in ({"text": " "}, {"token_ids": {"ids": [5000]}}, {"text": "cat", "request_id": "ñ"}):
                with pytest.raises(InvalidRequest):
                    await ask(model, **wrong, explain=common_pb2.Explain())
            assert 0 == model.explainer.num_places

    asyncio.run(run())


@pytest.mark.parametrize("name", ["tiny-text", "tiny-gpt", "tiny-tags"])
def test_an_answer_counts_when_it_is_explained(tiny_repository, name):
    """Until then it is not finished; cancelled meanwhile, its stage is explain and its tokens are wasted."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            count = lambda: {key: counter.value for key, counter in model.metrics.counters.items() if counter.value}  # noqa: E731 - read again below
            finished = lambda: sum(value for (name, _), value in count().items() if name == "finished_total")  # noqa: E731 - same
            with held(model) as go_on:
                asked = [asyncio.create_task(ask(model, **ASKS)) for _ in range(2)]
                await until(lambda: model.explainer.num_waiting == 2)
                assert (0, 2) == (finished(), model.metrics.explaining)
                asked[1].cancel()
                await asyncio.wait(asked[1:])
                go_on.set()
                answer = await asked[0]
            assert (1, 0) == (finished(), model.metrics.explaining)
            assert 1 == count()["cancelled_total", "explain"]
            tokens = answer.usage.output_tokens if hasattr(answer, "usage") else answer.completion.usage.output_tokens
            assert tokens == model.metrics.wasted_tokens.value

    asyncio.run(run())


def test_draining_ends_those_who_wait_for_an_explanation(tiny_repository):
    """Each with an outcome of its own, those being explained too; their answers are not finished."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            with held(model):
                asked = [asyncio.create_task(ask(model, **ASKS)) for _ in range(3)]
                await until(lambda: model.explainer.num_waiting == 3)
                model.cancel_all(Draining)
                outcomes = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
                assert [Draining] * 3 == [type(outcome) for outcome in outcomes]
                assert 3 == len(set(map(id, outcomes)))
            assert (0, 0) == (model.explainer.num_places, model.explainer.num_waiting)
            assert ("cancelled_total", "explain") not in model.metrics.counters
            with pytest.raises(Draining):  # whoever is only now being read
                await ask(model, **ASKS)

    asyncio.run(run())


def test_an_answer_that_ends_while_the_server_goes_is_told(tiny_repository):
    """Its explanation is refused as those are that wait already."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            model.explainer.cancel_all(Draining)
            with pytest.raises(Draining):
                await ask(model, **ASKS)

    asyncio.run(run())


def test_a_graph_that_fails_ends_its_request_alone(tiny_repository):
    """What it raised is the request's end; the next one is explained."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            explain = model.explainer.explain

            def fail(*_):
                raise RuntimeError("no memory")

            model.explainer.explain = fail
            with pytest.raises(RuntimeError, match="no memory"):
                await ask(model, **ASKS)
            assert (await ask(model, **PLAIN)).labels
            model.explainer.explain = explain
            assert (await ask(model, **ASKS)).HasField("alignment")
            assert 0 == model.explainer.num_places == model.explainer.num_waiting

    asyncio.run(run())


def test_a_deadline_ends_an_explanation_and_its_place_in_the_queue(tiny_repository):
    """As gRPC does when it passes, the request is cancelled: nobody waits for it and its graph does not run."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            before = model.metrics.explain.snapshot()[0][-1][1]
            with held(model) as go_on:
                first = asyncio.create_task(ask(model, **ASKS))
                await until(lambda: model.explainer.num_waiting == 1)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(ask(model, **ASKS), 0.2)
                assert (1, 1) == (model.explainer.num_places, model.explainer.num_waiting)
                go_on.set()
                assert (await first).HasField("alignment")
            assert before + 1 == model.metrics.explain.snapshot()[0][-1][1]

    asyncio.run(run())


def test_a_message_holds_what_the_graph_gave(tiny_repository):
    """Weights come as they are, float32 for float32, whatever their number; mass without what rounding added."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            rng = np.random.default_rng(8)
            for rows, columns in [(1, 1), (1, 31), (1, 32), (3, 1365), (64, 64), (200, 5243)]:
                weights = rng.standard_normal((rows, columns)).astype(np.float32)
                given = Explanation(weights, np.float32([0.1, 1, 1 + 1e-6, -1e-6]))
                model.explainer.explain = lambda *_, given=given: given
                answer = await ask(model, **ASKS)
                assert weights.tobytes() == np.array(answer.alignment.weights, np.float32).tobytes()
                assert [np.float32(0.1), 1, 1, 0] == answer.alignment.source_mass
                assert 3 == len(answer.alignment.source_tokens)

    asyncio.run(run())


def test_defaults_are_the_manifests(tiny_repository):
    """A model with a default layer reads it; one without reads the summary of all layers."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            assert AttentionChoice(1, None) == model.explainer.resolve(common_pb2.Explain())
            manifest = type(model.manifest)()
            manifest.CopyFrom(model.manifest)
            manifest.attention.ClearField("default_layer")
            explainer = Explainer(manifest, None, model.metrics, max_asking=1, worker=None)
            assert AttentionChoice(None, None) == explainer.resolve(common_pb2.Explain())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [(ValueError("a wrong shape"), LaneFailed, "EXPLAIN_FAILED"), (MemoryError(), Overloaded, "OUT_OF_MEMORY")],
)
def test_whatever_fails_in_an_explanation_is_a_typed_error(error, raised, reason, monkeypatch):
    """Whatever it is, it is a typed error and is counted; its thread goes on, and no time is noted."""
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSLATE)
    metrics = Metrics().for_model("m", 1, "t")
    explainer = Explainer(manifest, None, metrics, max_asking=1, worker=None)
    whole = Explanation(np.ones((1, 1), np.float32), np.ones(1, np.float32))
    found = [error, whole]

    def read(*_):
        if isinstance(each := found.pop(0), Exception):
            raise each
        return each

    monkeypatch.setattr(explainer, "read", read)
    with pytest.raises(raised) as failed:
        explainer.explain(None, [1], AttentionChoice(None, None))
    assert (reason, 1) == (failed.value.reason, metrics.counters["failures_total", reason].value)
    assert whole is explainer.explain(None, [1], AttentionChoice(None, None))
