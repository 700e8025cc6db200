"""The Open Inference Protocol: what its tensors become is what weft.v1 answers, and what is no tensor is refused."""

import asyncio
import json
import shutil
from contextlib import AsyncExitStack

import numpy as np
import pytest

from intercepted import entry_of
from loaded import Loaded, ask
from open_inference import Asked, entries_of, infer, tensors
from pictures import png
from weft_proto.inference.methods import METHODS
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.errors import InvalidRequest, ModelNotFound, ModelNotReady
from weft_server.models.registry import ModelRegistry
from weft_server.models.version_labels import VersionLabels
from weft_server.rpc.health import Health
from weft_server.rpc.open_inference.signatures import SIGNATURES, metadata_of

TEXTS = ["the cat", "the cat eats and the dog finds", "a bird"]
PICTURES = [png(8, 8), png(12, 9)]


def loaded(repository, name, version="1"):
    """A model of a repository."""
    return Loaded(repository / name / version, lanes=1)


def floats(values):
    """float32 bits."""
    return np.array(list(values), np.float32).tobytes()


def labels(answers):
    """What Classify's answers are as tensors."""
    names = [[each.label.encode() for each in answer.labels] for answer in answers]
    return {"label": names, "score": [floats(each.score for each in answer.labels) for answer in answers]}


def tags(answers):
    """What Tag's answers are, by the fields of their messages."""

    def said(messages):
        return [{field.name: getattr(each, field.name) for field in each.DESCRIPTOR.fields} for each in messages]

    return {name: [said(getattr(answer, name)) for answer in answers] for name in ("tokens", "spans")}


def vectors(answers):
    """What Embed's answers are, each of one input."""
    return {"embedding": [floats(answer.embeddings[0].values) for answer in answers]}


def shown(response):
    """A response, as the functions above show answers."""
    found = {}
    for name, array in tensors(response).items():
        if name in {"tokens", "spans"}:
            found[name] = [json.loads(each) for each in array]
        else:
            found[name] = [floats(row) if array.dtype == np.float32 else row.tolist() for row in array]
    return found


# By model: its tensors, its parameters, and what answers of weft.v1 to the same are.
ASKED = {
    "tiny-text": ({"text": TEXTS}, {"top_k": 2}, labels),
    "tiny-image": ({"image": PICTURES}, {}, labels),
    "tiny-tags": ({"text": TEXTS}, {}, tags),
    "tiny-embed": ({"text": TEXTS}, {"dimensions": 8}, vectors),
    "tiny-embed-image": ({"image": PICTURES}, {}, vectors),
    "tiny-match": ({"text": TEXTS}, {}, vectors),
}


async def by_weft(model, key, element, parameters):
    """The answer of weft.v1 to one element."""
    given = {key: {"data": element} if key == "image" else element}
    return await ask(
        model, **({"inputs": [given]} if "embed" in model.name or "match" in model.name else given), **parameters
    )


@pytest.mark.parametrize("name", ASKED)
def test_an_element_has_the_bits_that_weft_v1_gives_it(tiny_repository, name):
    """Raw or not, in any company; the answer comes in the form of the request, and as the metadata say."""
    inputs, parameters, expected = ASKED[name]
    ((key, elements),) = inputs.items()

    async def run():
        async with loaded(tiny_repository, name) as model:
            asked = Asked(model)
            alone = [await by_weft(model, key, each, parameters) for each in elements]
            metadata = await asked("ModelMetadata", name=model.name)
            for raw in (True, False):
                response = await asked("ModelInfer", infer(model.name, raw=raw, parameters=parameters, **inputs))
                assert expected(alone) == shown(response)
                assert raw == bool(response.raw_output_contents)
                assert (model.name, "1", "mine") == (response.model_name, response.model_version, response.id)
                for told, output in zip(metadata.outputs, response.outputs, strict=True):
                    assert (told.name, told.datatype) == (output.name, output.datatype)
                    assert len(told.shape) == len(output.shape)
                    assert [len(elements)] == output.shape[:1]
            assert {key} <= {each.name for each in metadata.inputs}
            assert (["1"], "onnx_onnxv1") == (list(metadata.versions), metadata.platform)

    asyncio.run(run())


def test_every_task_that_is_asked_by_tensors_has_its_signature():
    """They are those of the table of methods."""
    assert set(METHODS["ModelInfer"].tasks) == set(SIGNATURES)


def test_metadata_name_a_second_text_where_pairs_are_taken():
    """And only there."""
    task = common_pb2.TASK_CLASSIFY_TEXT
    for takes_pairs, names in ((True, ["text", "text_pair"]), (False, ["text"])):
        card = model_pb2.Model(task=task, takes_pairs=takes_pairs)
        assert names == [each.name for each in metadata_of(SIGNATURES[task], card).inputs]


def test_all_elements_are_answered_by_one_version(tiny_repository, tmp_path):
    """A canary that has a share of requests gets all elements of one, or none. The answer says which."""
    for version in ("1", "2"):
        shutil.copytree(tiny_repository / "tiny-text" / "1", tmp_path / "tiny-text" / version)

    async def run():
        async with AsyncExitStack() as stack:
            models = [await stack.enter_async_context(loaded(tmp_path, "tiny-text", v)) for v in ("1", "2")]
            registry = ModelRegistry(entries_of(*models))
            registry.set_labels("tiny-text", VersionLabels(stable=1, canary=2, share=0.5))
            asked = Asked(*models, registry=registry)

            def counted():
                return [each.metrics.counters["finished_total", "stop"].value for each in models]

            seen = set()
            while len(seen) < 2:
                before, request = counted(), infer("tiny-text", text=["a", "b", "c"])
                request.id = ""
                response = await asked("ModelInfer", request)
                seen.add(response.model_version)
                assert [3 * (each == response.model_version) for each in ("1", "2")] == [
                    now - then for now, then in zip(counted(), before, strict=True)
                ]
                assert "" == response.id
            for version, number in {"2": "2", "canary": "2", "stable": "1"}.items():
                request = infer("tiny-text", text=["a"])
                request.model_version = version
                assert number == (await asked("ModelInfer", request)).model_version

    asyncio.run(run())


def test_a_classifier_of_several_labels_says_all_of_their_scores(tiny_repository):
    """Those that Classify leaves out by default, too: else the rows of a tensor would differ in length."""

    async def run():
        async with loaded(tiny_repository, "tiny-text") as model:
            model.manifest.scoring = common_pb2.LABEL_SCORING_SIGMOID
            response = await Asked(model)("ModelInfer", infer("tiny-text", text=TEXTS))
            alone = [await ask(model, text=text, threshold=0.0) for text in TEXTS]
            assert labels(alone) == shown(response)
            assert len(model.manifest.labels) == response.outputs[0].shape[1]
            assert len((await ask(model, text=TEXTS[0])).labels) < len(model.manifest.labels)

    asyncio.run(run())


def test_wanted_outputs_come_in_their_order(tiny_repository):
    """And no others."""

    async def run():
        async with loaded(tiny_repository, "tiny-text") as model:
            asked, request = Asked(model), infer("tiny-text", text=TEXTS)
            for name in ("score", "label"):
                request.outputs.add(name=name)
                response = await asked("ModelInfer", request)
                assert [each.name for each in request.outputs] == [each.name for each in response.outputs]
            whole = shown(await asked("ModelInfer", infer("tiny-text", text=TEXTS)))
            assert whole == shown(response)

    asyncio.run(run())


def test_what_writes_text_is_refused_by_name():
    """The refusal says which method is for the model. So does that of its metadata."""
    writes = entry_of("writer", full=False)

    async def run():
        asked = Asked(registry=ModelRegistry([writes]))
        for method, field, request in (
            ("ModelInfer", "model_name", infer("writer", text=["a"])),
            ("ModelMetadata", "name", METHODS["ModelMetadata"].request(name="writer")),
        ):
            with pytest.raises(InvalidRequest, match=r"call weft\.v1\.GenerationService/Generate$") as error:
                await asked(method, request)
            assert ("WRONG_INPUT_KIND", field) == (error.value.reason, error.value.field)

    asyncio.run(run())


def test_readiness_is_that_of_health_and_of_the_models():
    """A model that loads is not ready, and has no metadata yet. One that there is not is not found."""

    async def run():
        health, ready, loading = Health(()), entry_of("ready", full=False), entry_of("loads", full=False)
        loading.state, loading.model, loading.task = model_pb2.MODEL_STATE_LOADING, None, common_pb2.TASK_UNSPECIFIED
        asked = Asked(health=health, registry=ModelRegistry([ready, loading]))
        assert (True, False) == ((await asked("ServerLive")).live, (await asked("ServerReady")).ready)
        await health.set_ready(serving=True)
        await health.set_live(serving=False)
        assert (False, True) == ((await asked("ServerLive")).live, (await asked("ServerReady")).ready)
        assert [True, False] == [(await asked("ModelReady", name=each)).ready for each in ("ready", "loads")]
        with pytest.raises(ModelNotReady):
            await asked("ModelMetadata", name="loads")
        for method in ("ModelReady", "ModelMetadata"):
            with pytest.raises(ModelNotFound) as error:
                await asked(method, name="nothing")
            assert "name" == error.value.field
            with pytest.raises(InvalidRequest) as error:
                await asked(method, name="ready", version="0")
            assert "version" == error.value.field
        assert "weft" == (await asked("ServerMetadata")).name

    asyncio.run(run())
