"""Who may call what: a real gRPC server without models, every method that it has, tokens and certificates."""

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from intercepted import (
    AUTHORITY,
    HEALTH,
    LIST_MODELS,
    MAX_REQUEST_BYTES,
    REFLECTION,
    TOKENS,
    ask,
    credentials_of,
    entry_of,
    gate_of,
    look_twice,
    methods,
    open_channel,
    run,
    served,
)
from waiting import until
from weft_proto.inference import methods as open_inference
from weft_proto.v1.methods import SERVICES
from weft_server.auth.authorization import Authorization, role_of
from weft_server.auth.tokens import ANYONE, Role
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.interceptor import Interceptor

# The role that each service of the contracts needs. A new service stands here before it is served.
ROLES = dict.fromkeys((*SERVICES, open_inference.SERVICE), Role.CALL) | {"weft.v1.ModelAdminService": Role.ADMIN}


def test_who_is_not_asked_is_anybody():
    """By gRPC and by HTTP, whatever they send along."""
    nobody_asks = Authorization(credentials_of())
    assert ANYONE is nobody_asks.of_metadata(LIST_MODELS, [("authorization", "Bearer x")])
    assert ANYONE is nobody_asks.of_request(Role.ADMIN, ["Bearer x"], None)


def test_every_service_has_its_role():
    """Each service of the contracts is in the list above, and its methods need the role that stands there."""
    assert {method.rpartition("/")[0][1:] for method in methods()} <= set(ROLES)
    assert all(ROLES[method.rpartition("/")[0][1:]] is role_of(method) for method in methods())
    assert {role_of(HEALTH), role_of(REFLECTION), role_of("/a.B/C")} == {Role.CALL}


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, ("UNAUTHENTICATED", "TOKEN_MISSING")),
        ("", ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        ("Bearer", ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        ("Bearer token-of-nobody", ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        ("token-of-the-caller", ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        ("Basic token-of-the-caller", ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        (["Bearer token-of-the-caller", "Bearer token-of-the-caller"], ("UNAUTHENTICATED", "TOKEN_UNKNOWN")),
        ("Bearer token-of-the-scraper", ("PERMISSION_DENIED", "ROLE_MISSING")),
    ],
)
def test_no_method_answers_who_may_not_call(tmp_path, token, expected):
    """Every method of the contracts, reflection, and one that there is not: all refuse alike, and are counted."""

    async def scenario():
        async with served(tmp_path) as (target, metrics, _), open_channel(target) as channel:
            asked = [*methods(), REFLECTION, "/weft.v1.TranslationService/Nothing", "/other.Service/Nothing"]
            for method in asked:
                assert (method, expected) == (method, await ask(channel, method, b"\xff", token))
            counters = metrics.for_model("", "", "").counters
            assert {expected[0]: len(asked)} == {
                code: counter.value
                for (name, code), counter in counters.items()
                if name == "requests_total" and counter.value
            }

    run(scenario())


@pytest.mark.parametrize(
    ("token", "roles"),
    [("Bearer token-of-the-caller", {Role.CALL}), ("bearer  token-of-the-operator", {Role.CALL, Role.ADMIN})],
)
def test_a_token_opens_the_methods_of_its_roles(tmp_path, token, roles):
    """With the role a request comes as far as its contents: there is no such model, field or method here."""

    async def scenario():
        async with served(tmp_path) as (target, _, _), open_channel(target) as channel:
            for method in methods():
                code, reason = await ask(channel, method, token=token)
                assert (method, role_of(method) in roles) == (method, reason != "ROLE_MISSING")
                assert (method, code != "UNAUTHENTICATED") == (method, True)
            assert ("UNIMPLEMENTED", "METHOD_NOT_FOUND") == await ask(channel, "/other.Service/Nothing", token=token)
            assert ("OK", "") == await ask(channel, REFLECTION, b"\x3a\x00", token)

    run(scenario())


HIGH = [("weft-priority", "high")]


@pytest.mark.parametrize(
    ("who", "priority", "code"),
    [
        ("caller", "high", "PERMISSION_DENIED"),
        ("caller", "normal", "OK"),
        ("caller", "low", "OK"),
        ("search", "high", "OK"),
        ("search", "normal", "OK"),
    ],
)
def test_only_who_has_the_role_goes_before_others(tmp_path, who, priority, code):
    """The class high needs the role high, whatever the method. Everybody may be normal, and let others go first."""

    async def scenario():
        async with served(tmp_path) as (target, _, _), open_channel(target) as channel:
            for claimed in ([("weft-priority", priority)], [("weft-priority", "low"), ("weft-priority", priority)]):
                metadata = [("authorization", f"Bearer token-of-the-{who}"), *claimed]
                call = channel.unary_unary(LIST_MODELS)(b"", metadata=metadata, timeout=10)
                assert code == (await call.code()).name
            if code != "OK":
                expected = "'caller' lacks the role high, which `weft-priority: high` needs"
                assert expected == await call.details()

    run(scenario())


def test_a_certificate_goes_before_others_if_its_line_says_so(tmp_path):
    """Also where a certificate alone says who calls. Without a file of tokens nobody's does."""
    expected = {
        "urgent.example.com": ("OK", "PERMISSION_DENIED"),
        "signed.example.com": ("PERMISSION_DENIED", "PERMISSION_DENIED"),
    }

    async def scenario():
        for index, tokens in enumerate((TOKENS, None)):
            async with served(tmp_path, mutual=True, tokens=tokens) as (target, _, _):
                for name, codes in expected.items():
                    pair = AUTHORITY.issue(name, hosts=(name,))
                    async with open_channel(target, authority=AUTHORITY.certificate, pair=pair) as channel:
                        call = channel.unary_unary(LIST_MODELS)(b"", metadata=HIGH, timeout=10)
                        assert (name, codes[index]) == (name, (await call.code()).name)
                        assert grpc.StatusCode.OK is await channel.unary_unary(LIST_MODELS)(b"", timeout=10).code()

    run(scenario())


def test_where_nobody_is_asked_everybody_may_go_first(tmp_path):
    """Without tokens and certificates, everybody has all roles."""

    async def scenario():
        async with served(tmp_path, tokens=None) as (target, _, _), open_channel(target) as channel:
            call = channel.unary_unary(LIST_MODELS)(b"", metadata=HIGH, timeout=10)
            assert grpc.StatusCode.OK is await call.code()

    run(scenario())


def test_the_admin_port_is_for_admins(tmp_path):
    """Its methods need the role admin, also for a method that there is not; the others on it need the role call."""
    admin = [method for method in methods() if role_of(method) is Role.ADMIN]

    async def scenario():
        async with served(tmp_path, admin=True) as (target, _, _), open_channel(target) as channel:
            for method in [*admin, "/weft.v1.ModelAdminService/Nothing"]:
                for who in ("caller", "scraper"):
                    answer = await ask(channel, method, token=f"Bearer token-of-the-{who}")
                    assert (method, "PERMISSION_DENIED", "ROLE_MISSING") == (method, *answer)
                assert (method, "UNAUTHENTICATED", "TOKEN_MISSING") == (method, *await ask(channel, method))
                code, _ = await ask(channel, method, token="Bearer token-of-the-operator")
                assert code not in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
            assert ("OK", "") == await ask(channel, LIST_MODELS, token="Bearer token-of-the-caller")
            assert ("UNAUTHENTICATED", "TOKEN_MISSING") == await ask(channel, LIST_MODELS)

    assert len(admin) >= 4
    run(scenario())


def test_liveness_and_readiness_are_open_and_models_are_not(tmp_path):
    """Probes and balancing clients send no token. Which models there are is for callers who are known."""

    def service(name):
        return health_pb2.HealthCheckRequest(service=name).SerializeToString()

    async def scenario():
        async with served(tmp_path) as (target, _, _), open_channel(target) as channel:
            for name in ("", "live", "accepting", *SERVICES):
                assert (name, ("OK", "")) == (name, await ask(channel, HEALTH, service(name)))
            for name in ("model/secret", "model/other", "nothing"):
                for method in (HEALTH, HEALTH.replace("Check", "Watch")):
                    assert ("UNAUTHENTICATED", "TOKEN_MISSING") == await ask(channel, method, service(name))
            scraper, caller = "Bearer token-of-the-scraper", "Bearer token-of-the-caller"
            assert ("PERMISSION_DENIED", "ROLE_MISSING") == await ask(channel, HEALTH, service("model/secret"), scraper)
            assert ("OK", "") == await ask(channel, HEALTH, service("model/secret"), caller)
            assert ("NOT_FOUND", "SERVICE_NOT_FOUND") == await ask(channel, HEALTH, service("model/x"), caller)

    run(scenario())


def test_who_is_not_known_learns_nothing_of_the_models(tmp_path):
    """Neither that a queue is full nor what is wrong with the metadata: first comes who calls, by certificate too."""
    expected = {
        "signed.example.com": ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"),
        "stranger.example.com": ("UNAUTHENTICATED", "UNAUTHENTICATED"),
        "reader": ("PERMISSION_DENIED", "PERMISSION_DENIED"),
    }

    async def scenario():
        entries = [entry_of("m", full=True)]
        async with served(tmp_path, mutual=True, entries=entries) as (target, metrics, _):
            for name, codes in expected.items():
                pair = AUTHORITY.issue(name, hosts=(name,))
                async with open_channel(target, authority=AUTHORITY.certificate, pair=pair) as channel:
                    # No message comes, and none is waited for.
                    full = channel.stream_unary("/weft.v1.GenerationService/Generate")(timeout=10)
                    bad = channel.stream_unary(LIST_MODELS)(timeout=10, metadata=[("weft-priority", "urgent")])
                    assert (name, codes) == (name, ((await full.code()).name, (await bad.code()).name))
            counters = metrics.for_model("", "", "").counters
            assert {"INVALID_ARGUMENT": 1, "UNAUTHENTICATED": 2, "PERMISSION_DENIED": 2} == {
                code: counter.value
                for (name, code), counter in counters.items()
                if name == "requests_total" and counter.value
            }

    run(scenario())


def test_who_is_refused_is_refused_before_their_message(tmp_path):
    """A refusal comes while the message is still on its way: nothing of it is waited for, kept or parsed."""

    async def scenario():
        async with served(tmp_path) as (target, _, _), open_channel(target) as channel:
            # On the wire a stream of requests, of which none comes, is a request that does not come.
            call = channel.stream_unary("/weft.v1.TranslationService/Translate")(timeout=10)
            assert grpc.StatusCode.UNAUTHENTICATED is await call.code()

    run(scenario())


def test_without_tokens_nobody_is_asked(tmp_path):
    """As ever: a server for oneself."""

    async def scenario():
        async with served(tmp_path, tokens="") as (target, _, _), open_channel(target) as channel:
            assert ("OK", "") == await ask(channel, LIST_MODELS)
            assert ("UNIMPLEMENTED", "METHOD_NOT_FOUND") == await ask(channel, "/other.Service/Nothing")

    run(scenario())


def test_tokens_are_read_again(tmp_path):
    """A token that is taken out of the file is unknown from then on, and a new one is known."""

    async def scenario():
        async with served(tmp_path) as (target, _, credentials), open_channel(target) as channel:
            old, new = "Bearer token-of-the-caller", "Bearer another-token-16"
            assert ("OK", "") == await ask(channel, LIST_MODELS, token=old)
            (tmp_path / "tokens").write_text("caller call another-token-16\n")
            look_twice(credentials)
            assert ("UNAUTHENTICATED", "TOKEN_UNKNOWN") == await ask(channel, LIST_MODELS, token=old)
            assert ("OK", "") == await ask(channel, LIST_MODELS, token=new)

    run(scenario())


@pytest.mark.parametrize(
    ("names", "tokens", "expected"),
    [
        (("anybody", ()), "", ("OK", "")),
        (("anybody", ("signed.example.com",)), TOKENS, ("OK", "")),
        (("reader", ()), TOKENS, ("PERMISSION_DENIED", "ROLE_MISSING")),
        (("signed.example.com", ("other.example.com",)), TOKENS, ("UNAUTHENTICATED", "CERTIFICATE_UNKNOWN")),
        (("anybody", ()), TOKENS, ("UNAUTHENTICATED", "CERTIFICATE_UNKNOWN")),
    ],
)
def test_a_certificate_says_who_calls(tmp_path, names, tokens, expected):
    """By its alternative names, or if it has none by its common name. Without a file any that is signed may call."""

    async def scenario():
        async with served(tmp_path, mutual=True, tokens=tokens) as (target, _, _):
            pair = AUTHORITY.issue(names[0], hosts=names[1])
            async with open_channel(target, authority=AUTHORITY.certificate, pair=pair) as channel:
                assert expected == await ask(channel, LIST_MODELS)
                unknown = expected if expected[0] != "OK" else ("UNIMPLEMENTED", "METHOD_NOT_FOUND")
                assert unknown == await ask(channel, "/other.Service/Nothing")
                assert expected == await ask(channel, REFLECTION, b"\x3a\x00")
                assert ("OK", "") == await ask(channel, HEALTH)
                if not tokens:
                    assert ("PERMISSION_DENIED", "ROLE_MISSING") == await ask(channel, "/weft.v1.ModelAdminService/X")
                else:  # a token counts before a certificate
                    token = "Bearer token-of-the-caller"
                    assert ("OK", "") == await ask(channel, LIST_MODELS, token=token)

    run(scenario())


def test_tenants_do_not_share_what_is_kept():
    """The name is part of the key, whatever salt is sent; where nobody is asked, the salt alone is."""
    salted = RequestContext("Generate", tenant="alice")
    salted.salt("x")
    plain = RequestContext("Generate")
    plain.salt("x")
    keys = [RequestContext("Generate", tenant=name).cache_key for name in ("alice", "bob")]

    assert "x" == plain.cache_key
    assert 4 == len({*keys, salted.cache_key, plain.cache_key})


@pytest.mark.parametrize("mutual", [False, True])
def test_a_call_bears_its_callers_name(tmp_path, mutual):
    """By the token, or by the certificate."""
    seen = []

    async def answer(request, context):
        seen.append(REQUEST_CONTEXT.get().tenant)
        return b""

    async def scenario():
        async with served(tmp_path, mutual=mutual) as (_, _, credentials):
            interceptor = Interceptor(gate_of(), Authorization(credentials), MAX_REQUEST_BYTES)
            server = grpc.aio.server(interceptors=[interceptor])
            handlers = {"Ask": grpc.unary_unary_rpc_method_handler(answer, bytes)}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weft.v1.Test", handlers),))
            port = credentials.add_port(server, "127.0.0.1:0")
            await server.start()
            authority = AUTHORITY.certificate if mutual else None
            pair = AUTHORITY.issue("x", hosts=("signed.example.com",))
            async with open_channel(f"localhost:{port}", authority=authority, pair=pair) as channel:
                assert ("OK", "") == await ask(channel, "/weft.v1.Test/Ask", token="Bearer token-of-the-operator")
                await ask(channel, "/weft.v1.Test/Ask")
            await until(lambda: interceptor.gate.num_active == 0)
            await server.stop(0)

    run(scenario())
    assert ["operator", "signed"][: 1 + mutual] == seen
