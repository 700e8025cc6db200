"""A bundle that claims more than its graphs can do is refused at the claim, before anybody is answered by it."""

import asyncio

import numpy as np
import pytest

from loaded import Loaded
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.config import read_config
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.errors import AdapterRefused, BundleError
from weft_server.loading.build import build_model
from weft_server.loading.limit_checks import longest_tried, verify_classifier, verify_decoder, verify_explainer
from weft_server.loading.longest_inputs import longest_source
from weft_server.runtime.session import Session
from weft_server.telemetry.metrics import Metrics

CLAIMS = [
    ("tiny-translate", "source_vocab_size"),
    ("tiny-translate", "max_source_tokens"),
    ("tiny-generate", "source_vocab_size"),
    ("tiny-gpt", "source_vocab_size"),
    ("tiny-text", "source_vocab_size"),
    ("tiny-text", "max_source_tokens"),
    ("tiny-tags", "source_vocab_size"),
    ("tiny-extract", "source_vocab_size"),
    ("tiny-masks", "source_vocab_size"),
    ("tiny-git", "max_source_tokens"),
]


def claiming(directory, **more):
    """A verified bundle, and then so much more of each number of its text."""
    bundle = load_bundle(directory)
    manifest = bundle_pb2.BundleManifest()
    manifest.CopyFrom(bundle.manifest)
    for field, amount in more.items():
        setattr(manifest.text, field, getattr(manifest.text, field) + amount)
    return Bundle(bundle.name, bundle.version, bundle.directory, manifest)


def opened(bundle):
    """A model, which has not started."""

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        return build_model(bundle, read_config(repository=bundle.directory), metrics, asyncio.get_running_loop())

    return asyncio.run(run())


def test_a_vocabulary_that_is_less_than_the_tokenizer_s_is_refused(tiny_repository):
    """Its last tokens would be beyond the graph's table, at the first text that has one."""
    bundle = claiming(tiny_repository / "tiny-text" / "1", source_vocab_size=-1)
    claimed = bundle.manifest.text.source_vocab_size
    with pytest.raises(BundleError, match=f"has ids beyond text.source_vocab_size {claimed}$"):
        opened(bundle)


def test_a_model_that_is_built_can_load_its_adapters(tiny_repository):
    """It begins so when a request names one that lies beside it: here one that is not there after all."""
    bundle = load_bundle(tiny_repository / "tiny-text" / "1")

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        model = build_model(bundle, read_config(repository=bundle.directory), metrics, asyncio.get_running_loop())
        with pytest.raises(AdapterRefused, match="is missing"):
            await model.adapters.begin_loading(bundle.directory / "formal")

    asyncio.run(run())


def test_a_mask_that_the_tokenizer_does_not_have_is_refused(tiny_repository):
    """No text could have it."""
    with pytest.raises(BundleError, match=r"has no token of text\.mask_id 9999$"):
        opened(claiming(tiny_repository / "tiny-text" / "1", mask_id=9999))


@pytest.mark.parametrize(("name", "field"), CLAIMS)
def test_a_claim_beyond_the_graph_is_refused_by_name(tiny_repository, name, field):
    """An id more than the table has, or a length beyond the last position: one sentence says which, and how many."""
    bundle = claiming(tiny_repository / name / "1", **{field: 99 if name == "tiny-git" else 9999})
    claimed = getattr(bundle.manifest.text, field)
    with pytest.raises(BundleError, match=rf"^text\.{field} {claimed} is more than a graph can do: \S") as refused:
        opened(bundle)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption", "tiny-speech", "tiny-generate", "tiny-gpt"])
def test_the_slots_are_as_new_afterwards(tiny_repository, name):
    """No answer begins with what was tried."""
    bundle = load_bundle(tiny_repository / name / "1")
    roles = (bundle_pb2.GRAPH_ROLE_ENCODER, bundle_pb2.GRAPH_ROLE_DECODER, bundle_pb2.GRAPH_ROLE_MIXED)
    graphs = [bundle.graph(role) for role in roles]
    encoder, decoder, mixed = (Session(bundle.path(graph.path), 1) if graph else None for graph in graphs)
    slots = Slots(3, bundle.manifest.text.max_new_tokens)
    fresh = [column.copy() for column in slots.columns]
    verify_decoder(DecodeRunner(bundle.manifest, encoder, decoder, slots, mixed), slots, bundle.manifest)
    for before, after in zip(fresh, slots.columns, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-generate"])
@pytest.mark.parametrize(
    ("claim", "field"),
    [
        ({"target_vocab_size": 1}, "target_vocab_size"),
        ({"max_new_tokens": 99, "max_total_tokens": 99}, "max_new_tokens"),
    ],
)
def test_an_explanation_reaches_as_far_as_an_answer(tiny_repository, name, claim, field):
    """The EXPLAIN graph has tables of its own, and is asked for the longest answer with the last id."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            verify_explainer(model.explainer, model.manifest)
            assert 0 == model.metrics.explain.snapshot()[0][-1][1]
            manifest = claiming(tiny_repository / name / "1", **claim).manifest
            with pytest.raises(BundleError, match=rf"^text\.{field} \d+ is more than a graph can do"):
                verify_explainer(model.explainer, manifest)

    asyncio.run(run())


def test_an_answer_of_another_shape_is_refused(tiny_repository):
    """ONNX Runtime only warns when a graph gives another shape than it states."""
    bundle = load_bundle(tiny_repository / "tiny-text" / "1")

    class Short:
        def run(self, feeds):
            return {"probabilities": np.zeros((1, len(bundle.manifest.labels)), np.float32)}

    with pytest.raises(BundleError, match=r"source_vocab_size \d+ is more than a graph can do: it gives \[1, \d+\]"):
        verify_classifier(Short(), bundle.manifest, bundle_pb2.GRAPH_ROLE_CLASSIFIER)


@pytest.mark.parametrize(("num_parameters", "alone", "five"), [(10**7, 2048, 2048), (135 * 10**6, 2036, 407)])
def test_a_large_models_trials_are_shorter(num_parameters, alone, five):
    """A start that took the longest prompts a large model can read would take minutes."""
    manifest = bundle_pb2.BundleManifest(provenance=bundle_pb2.Provenance(num_parameters=num_parameters))
    assert (alone, five) == (longest_tried(manifest), longest_tried(manifest, 5))
    manifest.provenance.num_parameters = 10**12
    assert 64 == longest_tried(manifest)


def test_the_longest_input_is_what_a_task_takes():
    """A question beside a picture is for a model that answers alone. A text may be shorter than the model takes."""
    manifest = bundle_pb2.BundleManifest(
        text=bundle_pb2.TextSpec(max_source_tokens=9),
        image=bundle_pb2.ImageSpec(channels=3, height=4, width=2, grid_rows=2, grid_columns=1),
    )
    for task, question in ((common_pb2.TASK_ANSWER, (7,) * 9), (common_pb2.TASK_CAPTION, ())):
        manifest.task = task
        source = longest_source(manifest, takes_image=True, token_id=7)
        assert ((3, 4, 2), question) == (source.array.shape, source.question)
    manifest.task = common_pb2.TASK_TRANSLATE
    assert [7] * 9 == longest_source(manifest, takes_image=False, token_id=7).array.tolist()
    assert [7] * 4 == longest_source(manifest, takes_image=False, token_id=7, most=4).array.tolist()


def test_a_short_sound_has_as_many_labels_as_are_asked_for():
    """The least that has one, and a hop more for each label more; never more than a window."""
    audio = bundle_pb2.AudioSpec(sample_rate=4000, hop_size=20, num_frames=100, ctc={"min_samples": 30})
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSCRIBE_CTC, audio=audio)
    lengths = {
        most: longest_source(manifest, takes_image=False, most=most).array.size for most in (1, 3, 99, 999, None)
    }
    assert {1: 30, 3: 70, 99: 1990, 999: 2000, None: 2000} == lengths
