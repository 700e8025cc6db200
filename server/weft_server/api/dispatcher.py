"""Takes each request of HTTP from its headers to the end of its response, as the interceptor does for gRPC."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import structlog

from weft_server.admission.early_admission import PRIORITY_KEY
from weft_server.api.caller import Caller
from weft_server.api.connection import HEAD_S
from weft_server.api.http_messages import HttpResponse
from weft_server.api.refusal import Refused, refusal_of
from weft_server.auth.tokens import Role
from weft_server.calls.access_log import OK
from weft_server.errors import (
    DeadlineExpired,
    HostRefused,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    PageRefused,
    RequestError,
    Unauthenticated,
)
from weft_server.models.request_context import REQUEST_CONTEXT, REQUEST_ID_KEY, RequestContext
from weft_server.sequence import Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft_server.api.connection import Connection
    from weft_server.api.cross_origin import CrossOrigin
    from weft_server.api.http_messages import HttpRequest, Response, Route
    from weft_server.api.own_hosts import OwnHosts
    from weft_server.api.refusal import Refusal
    from weft_server.auth.authorization import Authorization
    from weft_server.calls.call_gate import CallGate

_log = structlog.get_logger(__name__)
TIMEOUT_KEY = "connect-timeout-ms"
# As the Connect protocol has it: https://connectrpc.com/docs/protocol#unary-request
_MAX_TIMEOUT_DIGITS = 10
# What is refused before it is known who calls.
_OF_STRANGERS = (HostRefused, PageRefused, Unauthenticated)


class Dispatcher:
    """Answers requests by a table of routes."""

    def __init__(
        self,
        routes: Iterable[Route],
        gate: CallGate,
        access: Authorization,
        answers: Mapping[str, Callable[[Any, Any], Any]],
        cross_origin: CrossOrigin,
        own_hosts: OwnHosts,
        refuse: Callable[[HttpRequest, Refusal], Response],
    ) -> None:
        """`answers` has what answers each method of weft.v1. `refuse` refuses what has no route."""
        self._routes = {(route.method, route.path): route for route in routes}
        self._methods: dict[str, list[str]] = {}
        for method, path in self._routes:
            self._methods.setdefault(path, []).append(method)
        self._gate = gate
        self._traffic = gate.traffic
        self._access = access
        self._answers = answers
        self._cross_origin = cross_origin
        self._own_hosts = own_hosts
        self._refuse = refuse

    async def answer(self, request: HttpRequest, connection: Connection) -> None:
        """Answer a request on its connection. A bug ends the connection."""
        route = self._route_of(request)
        call = RequestContext(route.rpc.name if route else "")
        call.http_method, call.http_route = request.method, route.path if route else ""
        try:
            if request.method == "OPTIONS" and self._cross_origin.knows(request):
                await self._send_at_once(call, self._cross_origin.preflight(request), request, connection)
                return
            try:
                self._admit(call, route, request)
            except RequestError as error:
                await self._turn_away(call, error, route, request, connection)
                return
            assert route, "a request without a route is admitted. This is a bug."
            await self._run(call, route, request, connection)
        except Exception:  # noqa: BLE001 - a bug, and the connection may be within a response
            _log.exception("an HTTP request failed", method=call.method)
            connection.abort()

    def _route_of(self, request: HttpRequest) -> Route | None:
        """Return the route of a path, or else that which takes anything for its last part."""
        any_last = f"{request.path.rpartition('/')[0]}/*"
        return self._routes.get((request.method, request.path)) or self._routes.get((request.method, any_last))

    def _admit(self, call: RequestContext, route: Route | None, request: HttpRequest) -> None:
        """Raise RequestError for who may not call, and for what is refused before its body is read."""
        call.peer = request.peer
        call.hear(request.headers)
        if not self._own_hosts.allows(request):
            raise HostRefused(request.header("host"))
        if not (self._cross_origin.allows(request) or self._own_hosts.is_own_page(request)):
            raise PageRefused(request.header("origin"))
        if not (route and route.is_open):
            # Nothing is told to strangers.
            identity = self._access.of_headers(request.path, request.headers, request.certificate)
            self._access.note(call, identity)
            call.may_be_high = Role.HIGH in identity.roles
        if route is None:
            raise MethodNotFound(request.path)
        call.deadline = call.started + _timeout(request.header(TIMEOUT_KEY))
        self._judge(call, route, request)
        request.incoming.bound(route.max_bytes)
        self._traffic.open(call)

    def _judge(self, call: RequestContext, route: Route, request: HttpRequest) -> None:
        """Raise RequestError for what is refused whatever its body says.

        Whoever was given the role high is judged as high where the body may say so. Where everybody may claim it,
        nobody is: a flood on a full model would be read.
        """
        may_claim = route.takes_priority and call.may_be_high and call.tenant and not request.header(PRIORITY_KEY)
        if may_claim:
            call.priority = Priority.HIGH
        self._gate.admit(call, route.rpc.tasks, request.headers)
        if may_claim:
            call.priority = Priority.NORMAL

    async def _turn_away(
        self,
        call: RequestContext,
        error: RequestError,
        route: Route | None,
        request: HttpRequest,
        connection: Connection,
    ) -> None:
        """Answer what is refused before its body is read."""
        request.incoming.drop()
        refusal = refusal_of(error, self._gate.refused(call, error))
        if isinstance(error, Overloaded):
            await self._gate.shed(call, by_http=True)
        # Strangers cannot see whether there is a route.
        refuse = route.refuse if route and not isinstance(error, _OF_STRANGERS) else self._refuse
        response = refuse(request, refusal)
        methods = self._methods.get(request.path)
        if isinstance(error, MethodNotFound) and methods:
            response = HttpResponse(405, headers=(("allow", ", ".join(methods)),))
        if isinstance(error, HostRefused) and isinstance(response, HttpResponse):
            response.status = 421
        await self._send_at_once(call, response, request, connection)

    async def _run(self, call: RequestContext, route: Route, request: HttpRequest, connection: Connection) -> None:
        """Read the body, answer, and count each call that was made; or the request, if it made none."""
        # A stream's first message may be awaited by a task of its own. The others are asked for by this one.
        REQUEST_CONTEXT.set(call)
        caller = Caller(self._gate, self._answers, call)
        connection.write_until = call.deadline
        try:
            response = await self._response(call, route, request, caller)
            await self._send(call, response, request, connection)
            if not (caller.calls or call.reason):
                call.code = OK
        except DeadlineExpired:  # in the middle of an answer, which nobody has read
            connection.abort()
        finally:
            self._gate.end(call)
            self._count(caller.calls or [call], call.given_up)

    def _count(self, calls: list[RequestContext], given_up: str) -> None:
        """Count each call as it ended. The response is what the last one gave: that ends now, and may be given up."""
        now, last = time.monotonic(), max(each.ended for each in calls)
        for each in calls:
            each.ended, each.given_up = (now, given_up) if each.ended == last else (each.ended, "")
        self._gate.count_ended(calls)

    async def _response(self, call: RequestContext, route: Route, request: HttpRequest, caller: Caller) -> Response:
        try:
            request.body = await self._gate.receive(call, request.incoming, lambda data: route.weigh(request, data))
            return await route.answer(request, caller)
        except Refused as refused:
            return route.refuse(request, refused.refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets a status
            # Perhaps nobody has begun to read it.
            request.incoming.drop()
            refusal = refusal_of(error, self._gate.failed(call, error))
            if isinstance(error, Overloaded):
                await self._gate.let_wait(call, error, by_http=True)
            return route.refuse(request, refusal)

    async def _send_at_once(
        self, call: RequestContext, response: Response, request: HttpRequest, connection: Connection
    ) -> None:
        """Send what is small. It is read soon, or never: then the connection ends."""
        connection.until = time.monotonic() + HEAD_S
        try:
            await self._send(call, response, request, connection)
        finally:
            self._traffic.outgoing.end(call)

    async def _send(
        self, call: RequestContext, response: Response, request: HttpRequest, connection: Connection
    ) -> None:
        """Send a response. Who does not read it is given up: `Outgoing` ends the connection, and this is cancelled."""
        response.headers += self._cross_origin.headers(request)
        if call.request_id:
            response.headers += ((REQUEST_ID_KEY, call.request_id),)
        outgoing = self._traffic.outgoing
        if isinstance(response, HttpResponse):
            call.http_status = response.status
            outgoing.begin(call, len(response.body))
            await connection.respond(response)
            outgoing.end(call)
            return
        call.http_status = 200
        async with aclosing(response.chunks) as chunks:
            await connection.begin_stream(response)
            async for chunk in chunks:
                outgoing.begin(call, len(chunk))
                await connection.write_chunk(chunk)
                outgoing.end(call)
        await connection.end_stream()


def _timeout(text: str) -> float:
    """Return how many seconds a caller waits, by what it says in milliseconds. Raises InvalidRequest."""
    if not text:
        return float("inf")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_TIMEOUT_DIGITS):
        raise InvalidRequest(TIMEOUT_KEY, f"must be milliseconds, in at most {_MAX_TIMEOUT_DIGITS} digits")
    return int(text) / 1000
