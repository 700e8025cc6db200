"""What the admin service refuses before anything is changed."""

import asyncio

import pytest

from weft_proto.v1 import admin_pb2
from weft_server.config import read_config
from weft_server.errors import InvalidRequest
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.admin_service import ModelAdminServicer

VERBS = {
    "LoadModel": admin_pb2.LoadModelRequest,
    "UnloadModel": admin_pb2.UnloadModelRequest,
    "SwapModel": admin_pb2.SwapModelRequest,
    "SetLabel": admin_pb2.SetLabelRequest,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_change_names_its_model_and_a_version_that_can_be(verb):
    """Without a name, and with version 0, nothing is changed. An unload names its version. Each call has an id."""
    servicer = ModelAdminServicer(None, ModelRegistry([]), read_config(repository="models"))
    no_version = "version is required" if verb == "UnloadModel" else "version must be at least 1, not 0"
    for fields, sentence in (({"version": 1}, "name is required"), ({"name": "m", "version": 0}, no_version)):
        call = RequestContext(verb)
        REQUEST_CONTEXT.set(call)
        with pytest.raises(InvalidRequest, match=f"^{sentence}$"):
            asyncio.run(getattr(servicer, verb)(VERBS[verb](**fields), None))
        assert call.request_id
