"""What a caller may ask of a model is what ListModels says of it."""

import asyncio

import pytest
from tiny import CHECKPOINTS

from loaded import Loaded, answering
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.config import read_config
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.services import behaviours


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_model_is_listed_as_its_manifest_states_it(tiny_repository, name):
    """Task, precision, labels, limits, prefixes, and what may be explained."""
    directory = tiny_repository / name / "1"

    async def run():
        async with Loaded(directory) as model:
            answer = answering(model, read_config(repository=tiny_repository.folder))["ListModels"]
            REQUEST_CONTEXT.set(RequestContext("ListModels"))
            (listed,) = (await answer(model_pb2.ListModelsRequest(), None)).models
            manifest = model.manifest
            assert manifest.task == listed.task
            assert "fp32" == listed.precision
            assert ["cpu"] == listed.devices
            assert manifest.labels == listed.labels
            assert manifest.text.prefixes == listed.prefixes
            assert manifest.text.HasField("chat") == listed.takes_messages
            assert bool(manifest.attention.heads) == listed.can_explain
            assert manifest.attention.heads == listed.attention_heads
            default = manifest.attention.HasField("default_layer")
            assert default == listed.HasField("default_attention_layer")
            assert manifest.attention.default_layer == listed.default_attention_layer
            if not manifest.HasField("decoding"):
                assert not listed.HasField("decoding")
                assert manifest.text.max_source_tokens == listed.limits.max_source_tokens

    asyncio.run(run())


def test_a_model_is_shown_by_its_name(tmp_path):
    """Whatever its state, as in the list of all. Each such call has an id, as each request has."""
    entries = [
        RegistryEntry("a", 1, tmp_path, model_pb2.MODEL_STATE_FAILED, "its files differ", common_pb2.TASK_TAG),
        RegistryEntry("b", 2, tmp_path),
    ]
    answer = behaviours(ModelRegistry(entries), read_config(repository=tmp_path))

    async def run():
        answers, ids = [], set()
        for method, request in (
            ("ListModels", model_pb2.ListModelsRequest()),
            ("GetModel", model_pb2.GetModelRequest(model=common_pb2.ModelSelector(name="a"))),
        ):
            call = RequestContext("x")
            REQUEST_CONTEXT.set(call)
            answers.append(await answer[method](request, None))
            ids.add(call.request_id)
        assert (2, False) == (len(ids), "" in ids)
        return answers

    listed, shown = asyncio.run(run())
    first = {"name": "a", "version": 1, "task": common_pb2.TASK_TAG, "error": "its files differ"}
    assert model_pb2.Model(**first, state=model_pb2.MODEL_STATE_FAILED) == shown.model == listed.models[0]
    assert ("b", model_pb2.MODEL_STATE_LOADING) == (listed.models[1].name, listed.models[1].state)
