"""The bounds of requests: each repeated field has one, each method holds to them, and what reads a field agrees."""

import asyncio
from functools import partial

import pytest
from tiny_masks import MASK

from intercepted import HEALTH, REFLECTION, methods, open_channel, run, served
from intercepted import ask as asked
from loaded import Loaded, ask, detokenize
from on_the_wire import places, varint
from weft_proto.inference import methods as open_inference
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import SERVICES
from weft_server.admission.message_fields import MAX_UNKNOWN, fields_of
from weft_server.admission.message_limits import FIELD_LIMITS
from weft_server.errors import InvalidRequest
from weft_server.rpc.grpc_server import ADMIN_SERVICES


def test_there_are_no_bounds_of_fields_that_are_not():
    """Each is a repeated field of a request."""
    repeated = {field.full_name for kind in methods().values() for _, field in places(kind) if field.is_repeated}
    assert repeated == set(FIELD_LIMITS)


def test_a_field_without_a_bound_is_a_bug():
    """It would let anything through, so no method of its message is answered."""
    with pytest.raises(AssertionError, match=r"weft\.v1\.Decoding\.stop may come without end\. This is a bug\."):
        fields_of(
            common_pb2.Decoding.DESCRIPTOR,
            {name: FIELD_LIMITS[name] for name in FIELD_LIMITS if name != "weft.v1.Decoding.stop"},
        )


def test_each_method_counts_the_fields_of_its_messages(tmp_path):
    """On both ports, in health and in reflection too."""

    async def scenario(*, admin):
        async with served(tmp_path, tokens="", admin=admin) as (target, _, _), open_channel(target) as channel:
            services = ADMIN_SERVICES if admin else (*SERVICES, open_inference.SERVICE)
            ours = [method for method in methods() if method.split("/")[1] in services]
            for method in (*ours, HEALTH, HEALTH.replace("Check", "Watch"), REFLECTION):
                unknown = varint(99 << 3) + b"\1"
                found = await asked(channel, method, unknown * (MAX_UNKNOWN + 1))
                assert (method, "INVALID_ARGUMENT", "INVALID_FIELD") == (method, *found)

    run(scenario(admin=False))
    run(scenario(admin=True))


def generate(**decoding):
    """What asks a model to go on with a prompt."""
    return partial(ask, token_ids={"ids": [5]}, decoding={"max_new_tokens": 1} | decoding)


HELLO = {"role": "user", "content": "a"}
# By field: a model, the field as its refusal names it, and what asks with so many of it.
READERS = {
    "ClassifyRequest.labels": ("tiny-match", "labels", lambda n: partial(ask, image={}, labels=["cat"] * n)),
    "FillMaskRequest.targets": (
        "tiny-masks",
        "targets",
        lambda n: partial(ask, text=f"the {MASK}", targets=["the"] * n),
    ),
    "EmbedRequest.inputs": ("tiny-embed", "inputs", lambda n: partial(ask, inputs=[{"text": "cat"}] * n)),
    "EmbedRequest.kinds": ("tiny-embed", "kinds", lambda n: partial(ask, inputs=[{"text": "cat"}], kinds=[1] * n)),
    "DetokenizeRequest.token_ids": ("tiny-generate", "token_ids", lambda n: partial(detokenize, token_ids=[5] * n)),
    "TokenIds.ids": ("tiny-generate", "token_ids.ids", lambda n: partial(ask, token_ids={"ids": [5] * n})),
    "Messages.turns": (
        "tiny-generate",
        "messages.turns",
        lambda n: partial(ask, messages={"turns": [{"role": "user", "content": "a"}] * n}),
    ),
    "Messages.functions": (
        "tiny-generate",
        "messages.functions",
        lambda n: partial(ask, messages={"turns": [HELLO], "functions": [{"name": f"f{i}"} for i in range(n)]}),
    ),
    "Message.calls": (
        "tiny-generate",
        "messages.turns[0].calls",
        lambda n: partial(ask, messages={"turns": [HELLO | {"calls": [{"name": "f"}] * n}]}),
    ),
    "Message.parts": (
        "tiny-generate",
        "messages.turns[0].parts",
        lambda n: partial(ask, messages={"turns": [{"role": "user", "parts": [{"text": "a"}] * n}]}),
    ),
    "Decoding.stop": ("tiny-generate", "decoding.stop", lambda n: generate(stop=["a"] * n)),
    "Decoding.bias": ("tiny-generate", "decoding.bias", lambda n: generate(bias=[{"token_ids": {"ids": [5]}}] * n)),
    "Decoding.banned": ("tiny-generate", "decoding.banned", lambda n: generate(banned=[{"text": "a"}] * n)),
    "TokenSet.ids": ("tiny-generate", "decoding.suppressed.ids", lambda n: generate(suppressed={"ids": [5] * n})),
    "Choice.texts": (
        "tiny-generate",
        "decoding.constraint.choice.texts",
        lambda n: generate(constraint={"choice": {"texts": [f"{i:04}" for i in range(n)]}}),
    ),
}


@pytest.mark.parametrize("name", [name.removeprefix("weft.v1.") for name in FIELD_LIMITS if "weft.v1." in name])
def test_the_reader_of_a_field_refuses_as_the_door_does(tiny_repository, name):
    """What reads the field takes as many, and of one more it says the same. A model may take fewer tokens."""
    model_name, field, asked_with = READERS[name]
    most, reason = FIELD_LIMITS[f"weft.v1.{name}"]

    async def refusal(model, count):
        try:
            await asked_with(count)(model)
        except InvalidRequest as error:
            return error.reason, error.field
        return None

    async def scenario():
        async with Loaded(tiny_repository / model_name / "1") as model:
            assert (reason, field) == await refusal(model, most + 1)
            assert ((reason, field) == await refusal(model, most)) == (name == "TokenIds.ids")

    asyncio.run(scenario())
