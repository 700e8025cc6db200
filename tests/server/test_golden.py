"""A model is ready only if it gives its golden answer, and explains it if it can."""

import asyncio
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from samples import sample
from tiny import CHECKPOINTS, INT8
from tiny_answers import ANSWERING

from loaded import Loaded
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.mixed_check import verify_mixed
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.loading import golden
from weft_server.loading.golden import verify_golden
from weft_server.models.explainer import Explanation
from weft_server.runtime.session import Session

MODELS = {name: sample(name).model for name in CHECKPOINTS}
EXPLAINED = [name for name, model in MODELS.items() if model.attention_heads]
# A model's only layer may be its own summary.
NOT_SUMMARISED = [name for name in EXPLAINED if not MODELS[name].summarises and len(MODELS[name].attention_heads) > 1]
TINY_BY_TASK = {sample(name).task: name for name in reversed(CHECKPOINTS)}
# What a whole batch answers with, in one run.
WITHOUT_STATES = [task for task in TINY_BY_TASK if not TASKS[task].writes_text]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_each_golden_answer_is_given_and_explained(tiny_repository, name):
    """What the exporter wrote is what is answered; a model that can explain has done so, the others never."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            await verify_golden(model)
            assert (model.explainer is not None) == bool(model.metrics.explain.snapshot()[0][-1][1])

    asyncio.run(run())


def test_a_mixed_graph_of_another_model_is_refused(tiny_repository, tmp_path):
    """Its digests may be right: it is held to the decoder's bits before anyone is given its own."""
    bundle = load_bundle(tiny_repository / "tiny-gpt" / "1")
    decoder = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1)
    own, strange = bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_MIXED).path), tmp_path / "mixed.onnx"
    other = onnx.load(own)
    for weight in other.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.5), weight.name))
    onnx.save(other, strange)
    for path, refusal in ((own, None), (strange, "the MIXED graph gives a row other bits than DECODER")):
        slots = Slots(3, bundle.manifest.text.max_new_tokens)
        runner = DecodeRunner(bundle.manifest, None, decoder, slots, Session(path, 1))
        with nullcontext() if refusal is None else pytest.raises(BundleError, match=refusal):
            verify_mixed(runner, slots, np.arange(8))
        assert 0 == slots.past_lengths.max()


@pytest.mark.parametrize("name", INT8)
def test_int8_answers_are_given_and_explained(int8_repository, name):
    """A bundle at int8 is ready by its own golden answer, as one at fp32 is."""

    async def run():
        async with Loaded(int8_repository / f"{name}-int8" / "1") as model:
            await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", TINY_BY_TASK.values())
def test_another_answer_is_refused(tiny_repository, name):
    """Other tokens, other probabilities, or those of fewer tokens: one sentence says that the golden answer differs."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            golden = model.manifest.golden
            answer = golden.embedding or golden.probabilities or golden.scores
            if answer:
                # Of what may be above 1, the tolerance is a share.
                answer[0] += 0.01 * max(1, abs(answer[0]))
            else:
                golden.token_ids[-1] = (golden.token_ids[-1] + 1) % model.manifest.text.target_vocab_size
            with pytest.raises(BundleError, match="the golden answer differs"):
                await verify_golden(model)
            if len(answer) > len(model.manifest.labels) > 0:
                del answer[-len(model.manifest.labels) :]
                with pytest.raises(BundleError, match="the golden answer differs"):
                    await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", [TINY_BY_TASK[task] for task in WITHOUT_STATES])
def test_an_answer_that_is_no_number_is_refused(tiny_repository, monkeypatch, name):
    """As of a graph that overflows here: NaN is within no tolerance."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            own = Session.run
            monkeypatch.setattr(
                Session, "run", lambda *asked: {port: array * np.nan for port, array in own(*asked).items()}
            )
            with pytest.raises(BundleError, match="the golden answer differs"):
                await verify_golden(model)

    asyncio.run(run())


def test_scores_that_are_no_numbers_are_refused(tiny_repository, monkeypatch):
    """The answer is right, and what the scorer says of it is within no tolerance."""

    async def run():
        async with Loaded(tiny_repository / "tiny-decoder" / "1") as model:
            own = golden.promised_scores

            async def spoilt(*asked):
                scores = await own(*asked)
                return scores._replace(log_probs=scores.log_probs * np.nan)

            monkeypatch.setattr(golden, "promised_scores", spoilt)
            with pytest.raises(BundleError, match="the golden answer is scored"):
                await verify_golden(model)

    asyncio.run(run())


def test_a_model_s_own_settings_do_not_change_its_golden_answer(tiny_repository):
    """It is what the model writes when nothing changes scores. So it was exported."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            suppressed = sorted({*model.manifest.golden.token_ids} - {*model.manifest.text.end_ids})
            model.manifest.decoding.suppressed.ids[:] = suppressed
            await verify_golden(model)
            assert suppressed == model.manifest.decoding.suppressed.ids

    asyncio.run(run())


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda weights, mass: (weights[:, 1:], mass), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights[1:], mass[1:]), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights, mass[:-1]), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights * np.float32(1.0001), mass), "rows that are no distributions"),
        (lambda weights, mass: (weights * np.nan, mass), "rows that are no distributions"),
        (lambda weights, mass: (weights + np.resize([1, -1], weights.shape), mass), "rows that are no distributions"),
        (lambda weights, mass: (weights, mass * np.nan), r"a mass outside \[0, 1\]"),
        (lambda weights, mass: (weights, mass - 1.0001), r"a mass outside \[0, 1\]"),
        (lambda weights, mass: (weights, mass + 1), r"a mass outside \[0, 1\]"),
    ],
    ids=["column short", "row short", "mass short", "above 1", "NaN", "negative", "mass NaN", "mass < 0", "mass > 1"],
)
@pytest.mark.parametrize("name", ["tiny-translate", "tiny-image", "tiny-tags", "tiny-masks", "tiny-generate"])
def test_an_explanation_that_does_not_fit_is_refused(tiny_repository, name, spoil, sentence):
    """Rows or columns that are not the answer's, and rows that are no distribution, keep a model from being ready."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            explain = model.explainer.explain
            model.explainer.explain = lambda *asked: Explanation(*spoil(*explain(*asked)[:2]))
            with pytest.raises(BundleError, match=sentence):
                await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", ANSWERING)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda target: target * np.nan, r"a mass outside \[0, 1\]"),
        (lambda target: -target, r"a mass outside \[0, 1\]"),
        (lambda target: target + np.resize(np.float32([1, -1]), target.shape), "rows that are no distributions"),
        (lambda target: target * 1000, r"a mass outside \[0, 1\]"),
    ],
    ids=["NaN", "mass < 0", "negative", "mass > 1"],
)
def test_what_lay_on_a_question_and_does_not_fit_is_refused(tiny_repository, monkeypatch, name, spoil, sentence):
    """The graph's own output is held to the rules, and not only what is made of it."""
    whole = Session.run

    def spoiled(session, feeds):
        made = whole(session, feeds)
        return made | {each: spoil(made[each]) for each in ("target_weights",) if each in made}

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            monkeypatch.setattr(Session, "run", spoiled)
            with pytest.raises(BundleError, match=sentence):
                await verify_golden(model)

    asyncio.run(run())


def test_a_mass_may_be_as_rough_as_the_bundles_precision(tiny_repository):
    """What a softmax in float16 sums to is 1 within a hundredth; in float32 that is refused."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            explain = model.explainer.explain

            def rough(*asked):
                weights, mass, _ = explain(*asked)
                return Explanation(weights, mass * np.float32(1.001))

            model.explainer.explain = rough
            with pytest.raises(BundleError, match="a mass outside"):
                await verify_golden(model)
            model.manifest.precision = bundle_pb2.PRECISION_FP16
            await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda heads: [count + 1 for count in heads], r"attention\.heads: layer 0 has no head \d+"),
        (lambda heads: [*heads[:-1], 1024], r"attention\.heads: layer \d+ has no head 1023"),
        (lambda heads: [*heads, heads[-1] + 1], None),
        (lambda heads: [*heads, heads[0]], None),
    ],
    ids=["a head too many", "many heads too many", "a layer too many", "a layer too many, of as many heads"],
)
def test_heads_that_the_graph_does_not_have_are_refused(tiny_repository, name, spoil, sentence):
    """A manifest that promises layers or heads beyond the graph's would show another layer's attention as theirs."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            attention = model.manifest.attention
            attention.heads[:] = spoil(list(attention.heads))
            with pytest.raises(BundleError, match=sentence or r"attention\.heads: "):
                await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_large_model_is_explained_a_few_times(tiny_repository, name):
    """Each reading runs all of it. The first and the last layer are read in any case."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            model.manifest.provenance.num_parameters = 10**12
            layers, explain = [], model.explainer.explain

            def counted(source, token_ids, reading, prefix_ids):
                layers.append(reading.layer)
                return explain(source, token_ids, reading, prefix_ids)

            model.explainer.explain = counted
            await verify_golden(model)
            assert {0, len(model.manifest.attention.heads) - 1} <= set(layers)
            assert len(layers) <= 30

    asyncio.run(run())


def test_heads_that_the_manifest_leaves_out_are_missed(tiny_repository):
    """What a layer attends to is the average of all its heads, not of those that are told of."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            model.manifest.attention.heads[0] -= 1
            with pytest.raises(BundleError, match=r"attention\.heads: layer 0 is not the average of 1 heads"):
                await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize("name", NOT_SUMMARISED)
def test_a_summary_that_the_graph_does_not_have_is_refused(tiny_repository, name):
    """Without a default layer the graph must have something of its own to show."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            model.manifest.attention.ClearField("default_layer")
            with pytest.raises(BundleError, match=r"attention\.default_layer is unset"):
                await verify_golden(model)

    asyncio.run(run())
