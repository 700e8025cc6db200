"""What a caller may ask of a model is what ListModels says of it."""

import asyncio

import pytest
from tiny import CHECKPOINTS

from loaded import Loaded, answering
from weft_proto.v1 import model_pb2
from weft_server.config import read_config
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext


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
