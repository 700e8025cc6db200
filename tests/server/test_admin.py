"""What the admin service refuses before anything is changed."""

import asyncio

import pytest

from weft_proto.v1.methods import ADMIN_SERVICE, METHODS
from weft_server.config import read_config
from weft_server.errors import InvalidRequest
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.services import behaviours

VERBS = {name: method.request for name, method in METHODS.items() if method.service == ADMIN_SERVICE}


@pytest.mark.parametrize("verb", VERBS)
def test_a_change_names_its_model_and_a_version_that_can_be(verb):
    """Without a name, and with version 0, nothing is changed. An unload names its version. Each call has an id."""
    answers = behaviours(ModelRegistry([]), read_config(repository="models"), object())
    no_version = "version is required" if verb == "UnloadModel" else "version must be at least 1, not 0"
    for fields, sentence in (({"version": 1}, "name is required"), ({"name": "m", "version": 0}, no_version)):
        call = RequestContext(verb)
        REQUEST_CONTEXT.set(call)
        with pytest.raises(InvalidRequest, match=f"^{sentence}$"):
            asyncio.run(answers[verb](VERBS[verb](**fields), None))
        assert call.request_id
