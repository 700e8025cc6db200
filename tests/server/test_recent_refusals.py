"""The last refusals of all callers: what is kept of them, what a flood cannot push out, and who may see them."""

import json
import time

import pytest

from http_calls import ask, asked, head, served
from intercepted import TOKENS, run
from weft_proto.v1.methods import METHODS
from weft_server.auth.authorization import REFUSALS_PATH
from weft_server.calls.recent_refusals import MAX_KINDS, MAX_OF_TENANT, Kind, RecentRefusals
from weft_server.console.console_routes import FACTS_PATH, FOLDER, console_routes
from weft_server.errors import InvalidRequest
from weft_server.models.request_context import RequestContext
from weft_server.openai_api.routes import refuse_path
from weft_server.telemetry.metrics import Metrics

SECRET = "what the caller wrote"


def noted(recent, tenant, method="Classify", code="INVALID_ARGUMENT", reason="EMPTY_INPUT", model=None):
    """One more ends."""
    metrics = Metrics().for_model(model, 2, "t") if model else None
    recent.note(RequestContext(method, tenant=tenant, metrics=metrics), code, reason)


def test_those_that_are_like_each_other_are_counted():
    """The one that came last stands first. A call that ended well, or whose caller went, is none."""
    recent, began = RecentRefusals(), time.time()
    noted(recent, "a", model="m")
    noted(recent, "b")
    noted(recent, "a", model="m")
    noted(recent, "a", code="OK", reason="")
    noted(recent, "a", code="CANCELLED", reason="")
    (first, met), (second, _) = recent.rows()

    assert Kind("a", "Classify", "INVALID_ARGUMENT", "EMPTY_INPUT", "m 2") == first
    assert Kind("b", "Classify", "INVALID_ARGUMENT", "EMPTY_INPUT", "") == second
    assert 2 == met.number
    assert began <= met.last_s <= time.time()


def test_a_tenant_that_is_refused_for_everything_hides_nobody():
    """It has a few, and pushes out its own. Of many tenants the oldest goes."""
    recent = RecentRefusals()
    noted(recent, "quiet")
    for number in range(3 * MAX_KINDS):
        noted(recent, "loud", reason=f"R{number}")
    kinds = [kind for kind, _ in recent.rows()]
    assert MAX_OF_TENANT == sum(kind.tenant == "loud" for kind in kinds)
    assert ("quiet", f"R{3 * MAX_KINDS - 1}") == (kinds[-1].tenant, kinds[0].reason)
    for number in range(MAX_KINDS):
        noted(recent, f"t{number}")
    assert [f"t{number}" for number in reversed(range(MAX_KINDS))] == [kind.tenant for kind, _ in recent.rows()]


async def refuse(request, call):
    """Words that quote the request."""
    call.name(request.request_id)
    raise InvalidRequest("text", f"is {request.text!r}")


def test_who_changes_models_sees_whose_calls_were_refused(tmp_path):
    """By its tenant, also where the body was not read. Nothing that a caller wrote stands there."""
    recent = RecentRefusals()

    async def scenario():
        async with served(tmp_path, tokens=TOKENS, Classify=refuse, recent=recent) as server:
            for token in ("token-of-the-caller", "token-of-nobody", "token-of-the-scraper"):
                body = json.dumps({"text": SECRET, "requestId": "0"}).encode()
                await ask(server, asked(body, METHODS["Classify"].path, f"authorization: Bearer {token}"))

    run(scenario())
    told = recent.rows()
    assert SECRET not in str(told)
    assert [
        ("scraper", "Classify", "PERMISSION_DENIED", "ROLE_MISSING", ""),
        ("", "Classify", "UNAUTHENTICATED", "TOKEN_UNKNOWN", ""),
        ("caller", "Classify", "INVALID_ARGUMENT", "INVALID_FIELD", ""),
    ] == [tuple(kind) for kind, _ in told]


@pytest.mark.parametrize(
    ("token", "status"),
    [("token-of-the-operator", 200), ("token-of-the-caller", 403), ("token-of-the-scraper", 403), ("token", 401),
     (None, 401)],
)  # fmt: skip
def test_the_page_of_refusals_is_for_the_role_admin(tmp_path, token, status):
    """Others hear no row of it, and their refusal is one more, under their name."""
    recent, seen = RecentRefusals(), []
    noted(recent, "team-a", model="m")

    async def scenario():
        routes = console_routes(refuse_path, lambda: 0, lambda: ("", b""), lambda _: False, recent.rows)
        async with served(tmp_path, tokens=TOKENS, routes=routes, refuse=refuse_path, recent=recent) as server:
            sent = [f"authorization: Bearer {token}"] if token else []
            seen.append(await ask(server, head(REFUSALS_PATH, *sent, method="GET")))

    run(scenario())
    (got, headers, body) = seen.pop()
    assert status == got
    row = {
        "tenant": "team-a",
        "method": "Classify",
        "code": "INVALID_ARGUMENT",
        "reason": "EMPTY_INPUT",
        "model": "m 2",
    }
    if status == 200:
        assert [row | {"number": 1}] == [{k: v for k, v in each.items() if k != "lastS"} for each in json.loads(body)]
        assert "no-cache" == headers["cache-control"]
    else:
        assert b"team-a" not in body
        names = {"token-of-the-caller": "caller", "token-of-the-scraper": "scraper"}
        assert (names.get(token, ""), "Console") == recent.rows()[0][0][:2]


@pytest.mark.parametrize("more", [[], ["content-length: 1"], ["authorization: Bearer nobody"]])
def test_strangers_do_not_see_whether_there_is_such_a_page(tmp_path, more):
    """Whatever they send, they are answered as for a path that is not there."""
    seen = []

    async def scenario():
        routes = console_routes(refuse_path, lambda: 0, lambda: ("", b""), lambda _: False, RecentRefusals().rows)
        async with served(tmp_path, tokens=TOKENS, routes=routes, refuse=refuse_path) as server:
            seen.append(await ask(server, head(REFUSALS_PATH, *more, method="GET")))
            seen.append(await ask(server, head(f"{FOLDER}none.json", *more, method="GET")))

    run(scenario())
    told = [(status, {**headers, "date": "", "x-request-id": ""}, body) for status, headers, body in seen]
    assert 401 == told[0][0]
    assert told[0] == told[1]


def test_where_models_cannot_be_changed_there_is_no_such_page():
    """Nor does the page hear that there is one."""
    seen = []

    async def scenario():
        routes = console_routes(refuse_path, lambda: 0, lambda: ("", b""), lambda _: False)
        async with served(routes=routes, refuse=refuse_path) as server:
            seen.append((await ask(server, head(REFUSALS_PATH, method="GET")))[0])
            seen.append(json.loads((await ask(server, head(FACTS_PATH, method="GET")))[2])["changes"])

    run(scenario())
    assert [404, False] == seen
