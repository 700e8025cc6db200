"""What one call is to the server, from its headers to its end."""

import pytest

from weft_server.errors import InvalidRequest
from weft_server.models.request_context import MAX_CACHE_SALT, MAX_REQUEST_ID, RequestContext
from weft_server.sequence import Priority, Standing
from weft_server.source import Ids


@pytest.mark.parametrize(("take", "most"), [("name", MAX_REQUEST_ID), ("salt", MAX_CACHE_SALT)])
def test_what_a_caller_sends_along_is_printable_and_short(take, most):
    """It stands in the log, and in the key of a cache, whose parts a line break divides."""
    for text in ("a" * most, "a b", "~"):
        getattr(RequestContext("m"), take)(text)
    for text in ("a" * (most + 1), "a\nb", "\0", "é", "\x7f"):
        with pytest.raises(InvalidRequest, match=f"must be at most {most} printable ASCII characters$"):
            getattr(RequestContext("m"), take)(text)


def test_a_call_without_a_request_id_gets_one_of_its_own():
    """One that has one keeps it."""
    calls = [RequestContext("m") for _ in range(3)]
    for call, name in zip(calls, ("", "", "mine"), strict=True):
        call.name(name)
    assert 3 == len({call.request_id for call in calls})
    assert [16, 16, 4] == [len(call.request_id) for call in calls]


def test_tenants_share_nothing_of_the_prefix_cache():
    """Neither with each other nor with who has no name, whatever their salts are."""
    keys = set()
    for tenant in ("", "a", "b"):
        for salt in ("", "a", "b"):
            call = RequestContext("m", tenant=tenant, priority=Priority.LOW)
            call.salt(salt)
            call.peer = "ipv4:1.2.3.4:5"
            assert Standing(Priority.LOW, tenant) == call.standing
            assert (f"={tenant}" if tenant else "ipv4:1.2.3.4:5") == call.holder
            keys.add(call.cache_key)
    assert 9 == len(keys)


def test_the_most_probable_tokens_are_bounded():
    """As many as the contract says, and one more is refused."""
    call = RequestContext("m")
    call.tell_tops(20)
    assert 20 == call.num_top_tokens
    with pytest.raises(InvalidRequest, match="num_top_tokens must be at most 20, not 21"):
        call.tell_tops(21)


def test_another_call_of_a_caller_stands_where_the_first_does():
    """With its deadline, its id and its connection. It has no model yet."""
    first = RequestContext("m", deadline=5.0, request_id="mine", tenant="a", priority=Priority.LOW, peer="p")
    other = first.another("n")
    assert ("n", 5.0, "mine", "a", Priority.LOW, "p", None) == (
        other.method, other.deadline, other.request_id, other.tenant, other.priority, other.peer, other.model,
    )  # fmt: skip


def test_a_request_takes_from_the_first_admission_to_the_last_explanation():
    """Its sequences began and ended at several moments. One that was not explained changes nothing."""
    call = RequestContext("Generate")
    for admitted, finished, explained in ((3.0, 4.0, 0.0), (2.0, 6.0, 9.0), (5.0, 5.5, 7.0), (0.0, 0.0, 0.0)):
        times = call.sequence(Ids([1])).times
        times.admitted, times.finished, times.explained = admitted, finished, explained
    call.let_go()
    assert (2.0, 6.0, 9.0) == (call.usage.admitted, call.usage.finished, call.usage.explained)
