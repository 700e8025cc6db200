"""Early admission: calls that are refused before their message is read."""

import json
import math

import pytest

from http_calls import ask, asked, served
from intercepted import TOKENS, entry_of, run
from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2, model_pb2
from weft_proto.v1.methods import METHOD_AT, METHODS
from weft_server.admission.early_admission import MODEL_KEY, EarlyAdmission
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.models.account import Account, TokenRate
from weft_server.models.allowed_models import AllowedModels
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import RequestContext
from weft_server.openai_api.routes import openai_routes
from weft_server.sequence import Priority, Standing

GENERATE = "/weft.v1.GenerationService/Generate"
CLASSIFY = "/weft.v1.ClassificationService/Classify"
# Of these it is not known before the message is read which queue they come to, or they come to none.
_UNJUDGED = {"Score", "Tokenize", "Detokenize"}


def _refuses(entries, method=GENERATE, metadata=(), **known):
    call = RequestContext(method, **known)
    try:
        EarlyAdmission(ModelRegistry(entries)).admit(call, METHOD_AT[method].tasks, metadata)
    except Overloaded:
        assert call.metrics in [entry.model.metrics for entry in entries]
        return True
    assert call.metrics is None
    return False


def test_the_only_model_of_a_task_is_judged_without_being_named():
    """A call that can mean one model alone is refused while the model's queue is full, and passes otherwise."""
    assert _refuses([entry_of("gpt", full=True)])
    assert not _refuses([entry_of("gpt", full=False)])
    assert not _refuses([entry_of("gpt", full=True)], CLASSIFY)


def test_a_model_that_a_caller_may_not_ask_is_never_meant():
    """Neither is its full queue told, nor does it keep the only other model from being judged."""
    entries = [entry_of("full", full=True), entry_of("hidden", full=False)]
    assert _refuses(entries, allowed_models=AllowedModels(["full"]))
    assert not _refuses(entries, allowed_models=AllowedModels(["hidden"]))
    assert not _refuses(entries[:1], allowed_models=AllowedModels(["other"]))


def test_of_several_models_the_metadata_names_one():
    """A call without the metadata may mean a model that has room, so it passes. So does one that names no model."""
    entries = [entry_of("full", full=True), entry_of("open", full=False)]
    assert not _refuses(entries)
    assert _refuses(entries, metadata=(("user-agent", "x"), (MODEL_KEY, "full")))
    assert not _refuses(entries, metadata=((MODEL_KEY, "open"),))
    assert not _refuses(entries, metadata=((MODEL_KEY, "nobody"),))


def test_a_flood_on_one_model_is_no_reason_to_refuse_another_s_calls():
    """Two full models of one task refuse nothing that may mean a third."""
    entries = [entry_of("a", full=True), entry_of("b", full=True), entry_of("c", full=False)]
    assert not _refuses(entries)
    assert not _refuses(entries, metadata=((MODEL_KEY, "c"),))


def test_a_version_with_room_may_be_meant():
    """The metadata names no version: all of a model's are full, or the call passes."""
    assert not _refuses([entry_of("gpt", full=True), entry_of("gpt", full=False, version=2)])
    assert _refuses([entry_of("gpt", full=True), entry_of("gpt", full=True, version=2)])


def test_a_model_that_is_not_there_yet_is_judged_later():
    """A name whose model loads gets the servicer's own sentence."""
    assert not _refuses([RegistryEntry("gpt", 1, None)], metadata=((MODEL_KEY, "gpt"),))


def test_a_file_is_let_in_where_a_model_may_take_it():
    """A Generate has as many bytes as texts have, unless one of the models that it may mean sees pictures."""
    blind, seeing, loading = entry_of("a", full=False), entry_of("b", full=False), RegistryEntry("c", 1, None)
    seeing.model.manifest.graphs = [bundle_pb2.Graph(role=bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER)]
    asleep = RegistryEntry("d", 1, None, model_pb2.MODEL_STATE_SLEEPING, task=common_pb2.TASK_GENERATE)

    def most(entries, name="", method=GENERATE):
        call = RequestContext(method)
        metadata = ((MODEL_KEY, name),) if name else ()
        EarlyAdmission(ModelRegistry(entries)).admit(call, METHOD_AT[method].tasks, metadata)
        return call.max_bytes

    assert MAX_TEXT_BYTES == most([blind]) == most([blind, seeing], "a") == most([blind, loading])
    free = most([blind, seeing]), most([blind, seeing], "b"), most([blind, asleep]), most([loading]), most([])
    assert {math.inf} == {*free, most([blind], method=CLASSIFY)}


def test_every_method_that_asks_a_model_is_judged_or_known_not_to_be():
    """A new method has its tasks in the contracts' table, or stands here."""
    assert _UNJUDGED == {each.name for each in METHODS.values() if not (each.tasks or each.takes_names)}


def test_metadata_says_class_and_tenant():
    """The tenant is believed only of the key that the server was given, and never in place of who is known."""

    def standing(*metadata, key="x-tenant", **known):
        call = RequestContext(GENERATE, **known)
        EarlyAdmission(ModelRegistry([]), key).admit(call, (), metadata)
        return call.standing

    assert Standing() == standing(("x-tenant", "a"), key=None)
    assert Standing(Priority.LOW, "a") == standing(("weft-priority", "low"), ("x-tenant", "a"))
    assert Standing(Priority.HIGH, "b") == standing(("x-tenant", "a"), ("weft-priority", "high"), tenant="b")
    assert Standing() == standing(("x-tenant", "a"), is_known=False)


@pytest.mark.parametrize(
    ("key", "value"), [("weft-priority", "urgent"), ("weft-priority", ""), ("x-tenant", ""), ("x-tenant", "a" * 65)]
)
def test_metadata_that_says_nothing_is_refused(key, value):
    """By the key's name."""
    with pytest.raises(InvalidRequest) as refused:
        EarlyAdmission(ModelRegistry([]), "x-tenant").admit(RequestContext(GENERATE), (), ((key, value),))
    assert key == refused.value.field


@pytest.mark.parametrize(
    ("name", "header", "priority", "found"),
    [
        ("search", "", "high", "HIGH"),
        # It passes, and is a normal one again: its model refuses it then.
        ("search", "", None, "NORMAL"),
        ("search", "weft-priority: normal", None, 429),
        ("search", "weft-priority: high", None, "HIGH"),
        ("caller", "", "high", 429),
        # Everybody may claim the class there, so a flood would be read.
        ("", "", "high", 429),
        ("", "weft-priority: high", None, "HIGH"),
    ],
)
def test_whose_body_may_claim_the_class_high_is_judged_as_high(name, header, priority, found, tmp_path):
    """A model that is full for normal calls has room for high ones. Which class a body asks for is not known yet."""
    entry = entry_of("m", full=False)
    entry.model.engine = Scheduler(1, 4, 100)
    entry.model.engine.reserve(count=4)

    async def generate(request, call):
        return generation_pb2.GenerateResponse(completion={"text": call.priority.name, "finish_reason": 1})

    async def scenario():
        routes = openai_routes(ModelRegistry([]), 1 << 20)
        tokens = TOKENS if name else ""
        async with served(tmp_path, tokens=tokens, entries=[entry], routes=routes, Generate=generate) as server:
            headers = [each for each in (header, f"authorization: Bearer token-of-the-{name}" * bool(name)) if each]
            body = json.dumps({"model": "m", "prompt": "p", "priority": priority}).encode()
            status, _, answer = await ask(server, asked(body, "/v1/completions", *headers))
            assert found == (json.loads(answer)["choices"][0]["text"] if status == 200 else status)

    run(scenario())


def test_an_account_that_has_used_up_its_rate_is_refused_before_its_message():
    """Where the call asks a model; to ask for names costs no tokens."""
    account = Account("alice")
    account.set_rate(TokenRate(60, 60 * 86_400))
    account.bucket.take(61)
    call = RequestContext(GENERATE, account=account)
    EarlyAdmission(ModelRegistry([])).admit(call, (), ())
    with pytest.raises(Overloaded) as refused:
        EarlyAdmission(ModelRegistry([])).admit(call, METHOD_AT[GENERATE].tasks, ())
    assert "TENANT_TOKEN_RATE" == refused.value.reason
