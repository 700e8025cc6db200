"""A ModelInfer on the wire is one call, as those of weft.v1 are: counted, refused, cancelled and let go once."""

import pytest

from intercepted import ask, entry_of, open_channel, run, served
from loaded import Loaded
from open_inference import entries_of, infer
from waiting import held, until
from weft_proto.inference.methods import METHODS
from weft_server.admission.early_admission import MODEL_KEY, EarlyAdmission
from weft_server.errors import Overloaded
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import RequestContext

INFER = METHODS["ModelInfer"].path
MANY = [f"the cat {number}" for number in range(40)]


def counted(model):
    """Calls that ended, by their status."""
    counters = model.metrics.counters
    return {code: each.value for (name, code), each in counters.items() if name == "requests_total" and each.value}


def test_each_is_counted_once_under_its_model(tiny_repository, tmp_path):
    """However many elements it has, and if one of them is refused."""

    async def scenario():
        async with (
            Loaded(tiny_repository / "tiny-text" / "1", lanes=1) as model,
            served(tmp_path, tokens="", entries=entries_of(model)) as (target, _, _),
            open_channel(target) as channel,
        ):
            assert ("OK", "") == await ask(channel, INFER, infer("tiny-text", text=MANY).SerializeToString())
            await until(lambda: {"OK": 1} == counted(model))
            wrong = infer("tiny-text", text=[*MANY, ""]).SerializeToString()
            assert ("INVALID_ARGUMENT", "EMPTY_INPUT") == await ask(channel, INFER, wrong)
            await until(lambda: {"OK": 1, "INVALID_ARGUMENT": 1} == counted(model))
            for name in ("ServerLive", "ServerReady", "ServerMetadata"):
                assert ("OK", "") == await ask(channel, METHODS[name].path)

    run(scenario())


def test_who_goes_frees_all_places(tiny_repository, tmp_path):
    """Nothing of it waits or runs on, and the model is let go."""

    async def scenario():
        async with (
            Loaded(tiny_repository / "tiny-text" / "1", lanes=1) as model,
            served(tmp_path, tokens="", entries=entries_of(model)) as (target, _, _),
            open_channel(target) as channel,
        ):
            with held(model):
                data = infer("tiny-text", text=MANY).SerializeToString()
                call = channel.unary_unary(INFER)(data)
                await until(lambda: model.stats().queued)
                call.cancel()
                await until(lambda: not model.stats().queued)
                await until(lambda: counted(model))
            assert {"CANCELLED": 1} == counted(model)
            await model.unheld()

    run(scenario())


def test_a_full_model_refuses_it_before_its_message_is_read():
    """Where metadata name the model, for a model of any task that is asked by tensors."""
    tasks = METHODS["ModelInfer"].tasks
    for task in tasks:
        entries = [entry_of("full", full=True, task=task), entry_of("open", full=False, task=task)]
        admission = EarlyAdmission(ModelRegistry(entries))
        with pytest.raises(Overloaded):
            admission.admit(RequestContext("ModelInfer"), tasks, [(MODEL_KEY, "full")])
        admission.admit(RequestContext("ModelInfer"), tasks, [(MODEL_KEY, "open")])
