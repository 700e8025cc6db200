"""What is no tensor, or too much, is refused by a typed error of the Open Inference Protocol that names the field."""

import asyncio
import threading

import pytest

from loaded import Loaded
from open_inference import Asked, infer, packed
from pictures import png
from weft_server.errors import AdapterRefused, InvalidRequest, RequestError
from weft_server.rpc.open_inference import inference
from weft_server.rpc.open_inference.refusals import INFER_FIELDS, renamed

TEXTS = ["the cat", "the cat eats and the dog finds", "a bird"]


def loaded(repository):
    """A text classifier."""
    return Loaded(repository / "tiny-text" / "1", lanes=1)


async def refused(asked, request):
    """(reason, field) of a request that must be refused."""
    with pytest.raises(RequestError) as error:
        await asked("ModelInfer", request)
    assert not isinstance(error.value, InvalidRequest) or error.value.message.startswith(error.value.field)
    return error.value.reason, error.value.field


def changed(**changes):
    """A request of three texts with some fields of its first tensor set."""
    request = infer("tiny-text", text=TEXTS)
    for name, value in changes.items():
        request.inputs[0].ClearField(name)
        request.inputs[0].MergeFrom(type(request.inputs[0])(**{name: value}))
    return request


def with_raw(*raw, **changes):
    """The same with other raw contents."""
    request = changed(**changes)
    del request.raw_input_contents[:]
    request.raw_input_contents.extend(raw)
    return request


def listed(**changes):
    """A request whose contents are not raw."""
    request = infer("tiny-text", text=TEXTS, raw=False)
    request.inputs[0].contents.MergeFrom(type(request.inputs[0].contents)(**changes))
    return request


THREE = packed([b"a"] * 3)
LIES = {
    "no input": (infer("tiny-text"), "EMPTY_INPUT", "inputs"),
    "a negative dimension": (changed(shape=[-3]), "INPUT_TOO_LONG", "inputs[0].shape"),
    "no element": (changed(shape=[0]), "INPUT_TOO_LONG", "inputs[0].shape"),
    "no dimension": (changed(shape=[]), "INVALID_FIELD", "inputs[0].shape"),
    "a huge dimension": (changed(shape=[2**62]), "INPUT_TOO_LONG", "inputs[0].shape"),
    "more than 32 bits have": (changed(shape=[2**31, 1]), "INPUT_TOO_LONG", "inputs[0].shape"),
    "sizes whose product is 0 in 64 bits": (changed(shape=[2**32, 2**32]), "INVALID_FIELD", "inputs[0].shape"),
    "one element too many": (changed(shape=[257]), "INPUT_TOO_LONG", "inputs[0].shape"),
    "two columns": (changed(shape=[3, 2]), "INVALID_FIELD", "inputs[0].shape"),
    "a matrix": (changed(shape=[3, 1, 1]), "INVALID_FIELD", "inputs[0].shape"),
    "no kind of number": (changed(datatype="bytes"), "INVALID_FIELD", "inputs[0].datatype"),
    "numbers": (changed(datatype="FP32"), "INVALID_FIELD", "inputs[0].datatype"),
    "a parameter": (changed(parameters={"shared_memory_region": {}}), "INVALID_FIELD", "inputs[0].parameters"),
    "fewer than the shape": (changed(shape=[4]), "INVALID_FIELD", "raw_input_contents[0]"),
    "more than the shape": (changed(shape=[2]), "INVALID_FIELD", "raw_input_contents[0]"),
    "half a length": (with_raw(THREE + b"\0\0"), "INVALID_FIELD", "raw_input_contents[0]"),
    "half an element": (with_raw(THREE[:-1]), "INVALID_FIELD", "raw_input_contents[0]"),
    "a length that lies": (with_raw(b"\xff" * 4 + b"a"), "INVALID_FIELD", "raw_input_contents[0]"),
    "nothing raw": (with_raw(b""), "INVALID_FIELD", "raw_input_contents[0]"),
    "a million of nothing": (with_raw(bytes(4_000_000)), "INVALID_FIELD", "raw_input_contents[0]"),
    "raw for nobody": (with_raw(THREE, b""), "INVALID_FIELD", "raw_input_contents"),
    "both contents": (changed(contents={"bytes_contents": [b"a"] * 3}), "INVALID_FIELD", "inputs[0].contents"),
    "too many listed": (listed(bytes_contents=[b"a"]), "INVALID_FIELD", "inputs[0].contents.bytes_contents"),
    "numbers listed": (listed(int_contents=[1]), "INVALID_FIELD", "inputs[0].contents.int_contents"),
    "no UTF-8": (with_raw(packed([b"a", b"\xff", b"a"])), "MALFORMED_REQUEST", "inputs[0].contents[1]"),
    "an empty text": (with_raw(packed([b"a", b"a", b""])), "EMPTY_INPUT", "inputs[0].contents[2]"),
    "an empty second text": (infer("tiny-text", text=["a"], text_pair=[""]), "EMPTY_INPUT", "inputs[1].contents[0]"),
    "a second text": (infer("tiny-text", text=["a"], text_pair=["b"]), "INVALID_FIELD", "inputs[1].contents[0]"),
    "different numbers": (infer("tiny-text", text=TEXTS, text_pair=["a"]), "INVALID_FIELD", "inputs[1].shape"),
    "another kind": (infer("tiny-text", image=[png()]), "WRONG_INPUT_KIND", "inputs"),
    "long texts": (infer("tiny-text", text=["a" * (1 << 21)] * 3), "MESSAGE_TOO_LARGE", "inputs"),
    "an unknown parameter": (
        infer("tiny-text", text=TEXTS, parameters={"threshold": 1}),
        "INVALID_FIELD",
        "parameters.threshold",
    ),
    "a wrong parameter": (
        infer("tiny-text", text=TEXTS, parameters={"top_k": "2"}),
        "INVALID_FIELD",
        "parameters.top_k",
    ),
    "a negative parameter": (
        infer("tiny-text", text=TEXTS, parameters={"top_k": -1}),
        "INVALID_FIELD",
        "parameters.top_k",
    ),
    "too many labels": (
        infer("tiny-text", text=TEXTS, parameters={"top_k": 1000}),
        "INVALID_FIELD",
        "parameters.top_k",
    ),
    "an adapter": (infer("tiny-text", text=TEXTS, parameters={"adapter": "x"}), "CANNOT_ADAPT", "parameters.adapter"),
    "no model": (infer("", text=TEXTS), "MODEL_REQUIRED", "model_name"),
    "another model": (infer("other", text=TEXTS), "MODEL_NOT_FOUND", "model_name"),
}


def test_what_is_no_tensor_is_refused(tiny_repository):
    """By a typed error that names the field, before anything is asked of the model; so are unknown outputs and ids."""
    twice = infer("tiny-text", text=TEXTS, raw=False)
    twice.inputs.append(twice.inputs[0])
    both = infer("tiny-text", text=TEXTS)
    for name in ("label", "score", "label"):
        both.outputs.add(name=name)
    unknown = infer("tiny-text", text=TEXTS)
    unknown.outputs.add(name="logits")
    counted = infer("tiny-text", text=TEXTS)
    counted.outputs.add(name="label").parameters["classification"].int64_param = 3
    long = infer("tiny-text", text=TEXTS)
    long.id = "x" * 65
    versions = {version: infer("tiny-text", text=TEXTS) for version in ("0", "2", "9" * 5000, "newest")}
    for version, request in versions.items():
        request.model_version = version
    more = {
        "a name twice": (twice, "INVALID_FIELD", "inputs[1].name"),
        "an output twice": (both, "INVALID_FIELD", "outputs[2].name"),
        "an unknown output": (unknown, "INVALID_FIELD", "outputs[0].name"),
        "a parameter of an output": (counted, "INVALID_FIELD", "outputs[0].parameters"),
        "a long id": (long, "INVALID_FIELD", "id"),
        "version 0": (versions["0"], "INVALID_FIELD", "model_version"),
        "version 2": (versions["2"], "MODEL_NOT_FOUND", "model_name"),
        "a long version": (versions["9" * 5000], "INVALID_FIELD", "model_version"),
        "no label": (versions["newest"], "INVALID_FIELD", "model_version"),
    }

    async def run():
        async with loaded(tiny_repository) as model:
            asked = Asked(model)
            for name, (request, *expected) in (LIES | more).items():
                assert (name, tuple(expected)) == (name, await refused(asked, request))
            assert [3] == (await asked("ModelInfer", changed(shape=[3, 1]))).outputs[0].shape[:1]

    asyncio.run(run())


def test_an_answer_has_so_many_labels_and_no_more(tiny_repository, monkeypatch):
    """More are refused before anything is asked: each would become an object."""
    monkeypatch.setattr("weft_server.rpc.open_inference.inference.MAX_LABELS", 5)

    async def run():
        async with loaded(tiny_repository) as model:
            asked = Asked(model)
            request = infer("tiny-text", text=TEXTS, parameters={"top_k": 2})
            assert ("MESSAGE_TOO_LARGE", "parameters.top_k") == await refused(asked, request)
            assert 0 == model.metrics.counters["finished_total", "stop"].value
            await asked("ModelInfer", infer("tiny-text", text=TEXTS, parameters={"top_k": 1}))

    asyncio.run(run())


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_a_large_answer_becomes_tensors_in_a_worker(tiny_repository, monkeypatch, small_bytes):
    """No other request waits for it. A small one is made at once."""
    seen = []
    monkeypatch.setattr(inference, "_SMALL_BYTES", small_bytes)
    for name in ("rows_of", "add_output"):
        made = getattr(inference, name)
        monkeypatch.setattr(
            inference,
            name,
            lambda *given, made=made, **more: seen.append(threading.current_thread()) or made(*given, **more),
        )

    async def run():
        async with loaded(tiny_repository) as model:
            return await Asked(model)("ModelInfer", infer("tiny-text", text=TEXTS[:1]))

    assert ["label", "score"] == [each.name for each in asyncio.run(run()).outputs]
    assert [small_bytes > 0] * 3 == [thread is threading.main_thread() for thread in seen]


@pytest.mark.parametrize("name", ["tiny-image", "tiny-embed-image"])
def test_a_picture_that_is_none_is_named_by_its_place(tiny_repository, name):
    """Whichever method of weft.v1 finds it."""

    async def run():
        async with Loaded(tiny_repository / name / "1", lanes=1) as model:
            request = infer(name, image=[png(), b"no picture"])
            assert ("BAD_IMAGE", "inputs[0].contents[1]") == await refused(Asked(model), request)

    asyncio.run(run())


def test_more_elements_than_may_wait_are_refused_by_the_shape(tiny_repository):
    """Embed takes all or none. Others wait for their turn, a few at a time."""

    async def run():
        for name in ("tiny-embed", "tiny-text"):
            async with Loaded(tiny_repository / name / "1", lanes=1, max_queued_requests=4) as model:
                asked, request = Asked(model, max_queued_requests=4), infer(name, text=["a"] * 5)
                if name == "tiny-text":
                    assert [5] == (await asked("ModelInfer", request)).outputs[0].shape[:1]
                else:
                    assert ("INPUT_TOO_LONG", "inputs[0].shape") == await refused(asked, request)

    asyncio.run(run())


def test_an_error_that_others_get_too_stays_theirs():
    """Who waits for the same adapter by weft.v1 is told of a field of weft.v1."""
    error = AdapterRefused("model", "adapter", "it is broken")
    told = renamed(error, INFER_FIELDS)
    assert ("parameters.adapter", "model.adapter") == (told.field, error.field)
    assert (type(error), error.reason, error.message) == (type(told), told.reason, told.message)
    assert str(error) == str(told)
