"""Accounts of the tokens file: rates of tokens, the models that a token opens, and what was used of each."""

import asyncio
import contextlib
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaded import Loaded, answering, ask
from waiting import until
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS
from weft_server.auth.accounts import Accounts
from weft_server.auth.tokens import Tokens, TokensError
from weft_server.errors import ModelNotAllowed, Overloaded
from weft_server.models.account import Account, TokenBucket, TokenRate
from weft_server.models.allowed_models import ALL_MODELS, AllowedModels
from weft_server.models.call_usage import CallUsage
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.source import Ids

PLAIN = "correct-horse-battery"


class Clock:
    """Seconds as a test says them."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        """The time of now."""
        return self.now


def used(input_tokens, output_tokens=0):
    """The usage of a request that a model has begun."""
    return CallUsage(input_tokens=input_tokens, output_tokens=output_tokens, admitted=1.0)


@given(
    st.integers(1, 1000),
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 500)), max_size=40),
)
def test_nobody_gets_more_than_the_rate(tokens, seconds, requests):
    """In any time, what is let in is what the bucket held, what came meanwhile, and the one that went below 0."""
    clock, got = Clock(), 0
    bucket = TokenBucket(TokenRate(tokens, seconds), clock)
    for wait, size in requests:
        clock.now += wait
        if not bucket.wait_s:
            bucket.take(size)
            got += size
    assert got <= tokens * (1 + clock.now / seconds) + 500


@given(st.integers(1, 1000), st.integers(1, 100), st.integers(1, 5000))
def test_who_waits_as_long_as_was_told_is_let_in(tokens, seconds, size):
    """And half of that is not enough."""
    clock = Clock()
    bucket = TokenBucket(TokenRate(tokens, seconds), clock)
    bucket.take(tokens + size)
    told = bucket.wait_s
    clock.now = told / 2
    assert bucket.wait_s > 0
    clock.now = told * 1.000001
    assert 0 == pytest.approx(bucket.wait_s, abs=1e-6 * seconds)


def test_a_request_is_charged_its_input_first_and_settled_at_its_end():
    """Input when it is read, output at the end; what no model began costs nothing."""
    account = Account("alice")
    account.set_rate(TokenRate(100, 10**6))
    usage = CallUsage()
    account.charge(usage, 30)
    account.charge(usage, 10)
    assert 60 == round(account.bucket.level)
    account.ended("m", CallUsage(input_tokens=40, output_tokens=25, admitted=1.0, charged_tokens=usage.charged_tokens))
    assert 35 == round(account.bucket.level)

    refused = CallUsage()
    account.charge(refused, 30)
    refused.input_tokens = 30
    account.ended("", refused)
    assert 35 == round(account.bucket.level)
    assert [
        ("m", {"tenant_requests_total": 1, "tenant_input_tokens_total": 40, "tenant_output_tokens_total": 25}),
        ("", {"tenant_requests_total": 1, "tenant_input_tokens_total": 0, "tenant_output_tokens_total": 0}),
    ] == account.usage()


def test_a_request_that_was_let_in_is_let_in_whole():
    """Its first input may go below 0, and its others do not care. The next request is refused, and told when."""
    account = Account("alice")
    # A token a day: a machine that stands still changes nothing.
    account.set_rate(TokenRate(60, 60 * 86_400))
    usage = CallUsage()
    account.charge(usage, 90)
    account.charge(usage, 10)
    with pytest.raises(Overloaded) as refused:
        account.charge(CallUsage(), 1)
    assert ("TENANT_TOKEN_RATE", 41) == (refused.value.reason, round(refused.value.retry_after_s / 86_400))


def held_from(model, num_tokens):
    """Let a model's lane step no more, once it has given so many tokens, before the event that is returned."""
    (lane,), free = model.engine.lanes, threading.Event()
    step, before = lane.step, model.metrics.generated_tokens.value

    def held(*args):
        if model.metrics.generated_tokens.value - before >= num_tokens:
            assert free.wait(30)
        return step(*args)

    lane.step = held
    return free


@pytest.mark.parametrize("ends", ["hangs up", "stops"])
def test_what_was_produced_for_an_answer_that_ends_early_is_paid(tiny_repository, ends):
    """Its call ends before the lane's next step, where its rows end. The account learns of them then.

    A stop string ends it with the token that completes it, and not with the one behind that: the lane waits here.
    """

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", lanes=1) as model:
            text = (await ask(model, text="w3 w4")).completion.text
            decoding = common_pb2.Decoding(stop=re.findall("[a-z]{3}", text)[:1])
            produced = (await ask(model, text="w3 w4", decoding=decoding)).completion.usage.output_tokens
            await until(lambda: not model.engine.stats().running)
            before, call = model.metrics.generated_tokens.value, RequestContext("Generate", account=Account("alice"))
            call.account.set_rate(TokenRate(1000, 1000 * 86_400))
            free = held_from(model, produced)
            try:
                REQUEST_CONTEXT.set(call)
                asked = METHODS["Generate"].request(text="w3 w4", decoding=decoding if ends == "stops" else None)
                task = asyncio.create_task(answering(model)["Generate"](asked, None))
                await until(lambda: produced == model.metrics.generated_tokens.value - before)
                if ends == "hangs up":
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    assert produced == (await task).completion.usage.output_tokens
                call.let_go()
                call.account.ended("m", call.usage)
            finally:
                free.set()
            await until(lambda: not model.engine.stats().running)
            counted = {
                "tenant_requests_total": 1,
                "tenant_input_tokens_total": call.usage.input_tokens,
                "tenant_output_tokens_total": produced,
            }
            await until(lambda: [("m", counted)] == call.account.usage())
            assert 1000 - call.usage.input_tokens - produced == round(call.account.bucket.level)

    asyncio.run(run())


def test_what_is_read_beside_an_answer_asks_the_rate_too():
    """Such as a recording whose language is detected first. It is charged with the answer's own input."""
    call = RequestContext("/weft.v1.TranscriptionService/Transcribe", account=Account("alice"))
    call.account.set_rate(TokenRate(2, 60 * 86_400))
    call.sequence(Ids(np.arange(3)), is_counted=True)
    assert (0, 2) == (call.usage.charged_tokens, round(call.account.bucket.level))
    call.account.bucket.take(3)
    with pytest.raises(Overloaded):
        call.sequence(Ids(np.arange(3)), is_counted=True)


def test_a_file_that_is_read_again_keeps_the_level():
    """At the same rate or another one. A bucket never holds more than its rate."""
    first = Tokens(f"alice call {PLAIN} rate=1000/day\nbob call {PLAIN}-bob rate=1000/day\n")
    names = first.rates
    accounts = Accounts(lambda: names)
    account = accounts.of(first.of_token(PLAIN))
    account.charge(used(900), 900)
    for rate, level in (("1000/day", 100), ("50/day", 50), ("9000/day", 50)):
        again = Tokens(f"alice call {PLAIN} rate={rate}\n")
        assert account is accounts.of(again.of_token(PLAIN))
        assert level == round(account.bucket.level)
    assert 1000 == round(accounts.of(first.of_token(f"{PLAIN}-bob")).bucket.level)
    accounts.of(Tokens(f"alice call {PLAIN}\n").of_token(PLAIN))
    assert account.bucket is None


def test_a_name_that_has_gone_takes_its_figures_with_it():
    """So the number of series is bounded by the file."""
    names = {"alice": None, "bob": None}
    known = Tokens(f"alice call {PLAIN}\nbob call {PLAIN}-bob\n")
    accounts = Accounts(lambda: names)
    for token in (PLAIN, f"{PLAIN}-bob"):
        accounts.of(known.of_token(token)).ended("m", used(1, 2))
    del names["bob"]
    assert ["alice"] == [name for name, _, _ in accounts.usage()]


def test_lines_of_a_name_share_a_rate():
    """Two tokens are one account, and may open different models."""
    known = Tokens(f"alice call {PLAIN} rate=5/s models=a,b:c\nalice call {PLAIN}-2 rate=5/s\n")
    one, two = known.of_token(PLAIN), known.of_token(f"{PLAIN}-2")
    accounts = Accounts(lambda: known.rates)
    assert accounts.of(one) is accounts.of(two)
    assert (True, False, True) == (one.models.allows("a"), one.models.allows("c"), two.models.allows("c"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("models=", "models= needs 1 to 1000 names"),
        ("models=a,,b", "models= needs"),
        ("models=a@2", "without a version"),
        ("models=a:", "models= needs"),
        ("models=a models=b", "it has models= twice"),
        ("rate=60", "rate= needs TOKENS/UNIT"),
        ("rate=0/s", "rate= needs TOKENS/UNIT"),
        ("rate=-1/s", "rate= needs"),
        ("rate=1/week", "a unit of s, min, h, day"),
        ("rate=9999999999999/s", "rate= needs"),
        ("quota=3", "behind the token there may be models=NAME,NAME and rate=TOKENS/UNIT"),
    ],
)
def test_what_is_wrong_behind_a_token_is_said(words, said):
    """By line, and the token is not quoted."""
    with pytest.raises(TokensError, match=f"line 1: .*{said}") as refused:
        Tokens(f"alice call {PLAIN} {words}\n")
    assert PLAIN not in str(refused.value)


def test_another_rate_for_the_same_name_is_refused():
    """Nobody knows which of both was meant."""
    with pytest.raises(TokensError, match="line 2: another line of 'alice' has another rate, or none"):
        Tokens(f"alice call {PLAIN} rate=5/s\nalice call {PLAIN}-2\n")


def test_a_name_opens_what_it_says_and_no_more():
    """The model alone, or one adapter of it. Where no name is given, all are open."""
    allowed = AllowedModels(["a", "b:c"])
    opened = [("a", ""), ("b", "c")]
    for name, adapter in [*opened, ("a", "c"), ("b", ""), ("b", "d"), ("c", ""), ("", "")]:
        assert ((name, adapter) in opened) == allowed.allows(name, adapter)
        assert ALL_MODELS.allows(name, adapter)
    assert [True, True, False] == [allowed.shows(name) for name in ("a", "b", "c")]
    with pytest.raises(ModelNotAllowed, match="does not open model 'b:d'"):
        allowed.check("b", "d")
