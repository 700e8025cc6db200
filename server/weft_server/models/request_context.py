"""One RPC as the server sees it: who asked, since when, until when, and under which model it is counted."""

from __future__ import annotations

import math
import random
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from weft_server.errors import InvalidRequest
from weft_server.models.allowed_models import ALL_MODELS, AllowedModels
from weft_server.models.call_usage import CallUsage
from weft_server.sequence import Priority, Sequence, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.models.account import Account
    from weft_server.models.model import Model
    from weft_server.sequence import Adapter, Decoding
    from weft_server.source import Source
    from weft_server.telemetry.model_metrics import ModelMetrics

# Metadata, and headers of HTTP, that say what a request is called and in which trace it is.
REQUEST_ID_KEY = "x-request-id"
TRACE_KEY = "traceparent"
TRACE_STATE_KEY = "tracestate"
MAX_REQUEST_ID = 64
MAX_TOP_TOKENS = 20
MAX_CACHE_SALT = 64


@dataclass(slots=True, eq=False)
class RequestContext:
    """Made by the interceptor when a call arrives. The servicer fills in what it learns."""

    method: str
    # Monotonic seconds.
    started: float = field(default_factory=time.monotonic)
    deadline: float = math.inf
    # What its message is called; else what its headers say, or what is made here.
    request_id: str = ""
    # What its headers say, unchecked.
    sent_id: str = ""
    traceparent: str = ""
    tracestate: str = ""
    # By HTTP: the method and the path of its route, and the status of its response. Empty and 0 by gRPC.
    http_method: str = ""
    http_route: str = ""
    http_status: int = 0
    # On whose account it goes: the name of a token or of a certificate, or what metadata says that is believed. Empty
    # for everybody who has none.
    tenant: str = ""
    # Of the tenant, where the tokens file names it.
    account: Account | None = None
    allowed_models: AllowedModels = ALL_MODELS
    # Whether it is settled who calls. Whoever shows a certificate alone is known when the handler begins.
    is_known: bool = True
    priority: Priority = Priority.NORMAL
    # Whether its caller may ask for the class high by HTTP. By gRPC only metadata asks, which is judged before.
    may_be_high: bool = False
    # What the caller says about who shares the prefix cache.
    cache_salt: str = ""
    # How many of the most probable tokens of each step its answer tells.
    num_top_tokens: int = 0
    # The model that answers, and its metrics, under which the call is counted. None until they are known.
    model: Model | None = None
    metrics: ModelMetrics | None = None
    # By which it is answered. None: by the model alone.
    adapter: Adapter | None = None
    # The connection that it came by, as gRPC spells its other end. Known when its handler begins.
    peer: str = ""
    # Whether it is counted as open, and under which tenant; or that it is a call of health.
    is_open: bool = False
    open_as: str = ""
    is_probe: bool = False
    # Of its message, from its arrival until the call is answered.
    num_bytes: int = 0
    # What is known of its request at the end, and the sequences that are still to be added to it.
    usage: CallUsage = field(default_factory=CallUsage)
    sequences: list[Sequence] = field(default_factory=list)
    # Of its message at most, where the models that it may mean take fewer than its method does.
    max_bytes: float = math.inf
    # Whether its message has come and it was taken in.
    begun: bool = False
    # How it ended: the name of its status, and the reason of ErrorInfo. A call whose handler never began was cancelled.
    code: str = "CANCELLED"
    reason: str = ""
    # Why the server gave up to send its answer, or empty.
    given_up: str = ""
    # When its caller had the answer, in monotonic seconds. Infinite until then.
    ended: float = math.inf

    def another(self, method: str) -> RequestContext:
        """Return the context of one more call that is made for the same caller."""
        return RequestContext(
            method,
            deadline=self.deadline,
            request_id=self.request_id,
            tenant=self.tenant,
            account=self.account,
            allowed_models=self.allowed_models,
            priority=self.priority,
            peer=self.peer,
            usage=self.usage,
        )

    @property
    def has_deadline(self) -> bool:
        """Whether its caller waits for a time that was told."""
        return self.deadline < math.inf

    @property
    def standing(self) -> Standing:
        """Where it stands among others that wait."""
        return Standing(self.priority, self.tenant)

    @property
    def holder(self) -> str:
        """Who answers for what it holds: the tenant, or for strangers the connection. Settled by its headers."""
        return f"={self.tenant}" if self.tenant else self.peer

    def hear(self, metadata: Iterable[tuple[str, Any]]) -> None:
        """Note what its metadata, or headers of HTTP, say of its request id and its trace. `check_sent_id` follows."""
        for key, value in metadata:
            if key == REQUEST_ID_KEY:
                self.sent_id = value
            elif key == TRACE_KEY:
                # Two are none: what is joined is no traceparent.
                self.traceparent += value
            elif key == TRACE_STATE_KEY:
                # Several are one list.
                self.tracestate += f",{value}" if self.tracestate else value
        if self.sent_id and _is_printable(self.sent_id, MAX_REQUEST_ID):
            self.request_id = self.sent_id

    def check_sent_id(self) -> None:
        """Raise InvalidRequest if the request id of its headers is too long or not printable ASCII."""
        if self.sent_id:
            _check_printable(REQUEST_ID_KEY, self.sent_id, MAX_REQUEST_ID)

    def name(self, request_id: str) -> None:
        """Take the request id of its message; else that of its headers stays, or one is made.

        Raises InvalidRequest if it is too long or not printable ASCII.
        """
        _check_printable("request_id", request_id, MAX_REQUEST_ID)
        # os.urandom would let a lane take the interpreter in the middle of a call.
        self.request_id = request_id or self.request_id or f"{random.getrandbits(64):016x}"

    def salt(self, cache_salt: str) -> None:
        """Take the caller's salt. Raises InvalidRequest if it is too long or not printable ASCII."""
        check_cache_salt(cache_salt)
        self.cache_salt = cache_salt

    @property
    def cache_key(self) -> str:
        """Who shares the prefix cache: calls of one tenant with the same salt. A name and a salt have no line break."""
        return f"{self.tenant}\n{self.cache_salt}" if self.tenant else self.cache_salt

    @property
    def adapter_name(self) -> str:
        """That of the adapter by which it is answered, or empty."""
        return self.adapter.name if self.adapter else ""

    def sequence(self, source: Source, decoding: Decoding | None = None, **more: Any) -> Sequence:
        """Return a sequence of this call, and charge its account. `more` are its other fields.

        Raises Overloaded if it is the request's first one and the account has used up its rate.
        """
        sequence = Sequence(
            request_id=self.request_id,
            source=source,
            decoding=decoding,
            adapter=self.adapter,
            standing=self.standing,
            deadline=self.deadline,
            **more,
        )
        sequence.times.accepted = self.started
        if self.account:
            # What is read again is another sequence's to pay. The rate is asked all the same.
            self.account.charge(self.usage, 0 if sequence.is_counted else sequence.num_input_tokens)
        if not self.usage.read:
            self.usage.read = time.monotonic()
        self.sequences.append(sequence)
        return sequence

    def take(self, model: Model) -> None:
        """Be answered by a model. It stays in memory until `let_go`."""
        self.model, self.metrics = model, model.metrics
        model.hold()

    async def adapt(self, name: str) -> None:
        """Be answered by an adapter of the model too, if one is named. Raises RequestError when it cannot be used."""
        if name:
            assert self.model is not None, "an adapter of no model. This is a bug."
            self.adapter = await self.model.adapters.take(name, self.standing, self.allowed_models)

    def let_go(self) -> None:
        """Need the model no more, nor what was asked of it. Called at the call's end."""
        for sequence in self.sequences:
            has_ended = sequence.times.finished > 0  # asked first: a lane may end it meanwhile
            num_known = self.usage.add(sequence)
            if self.account and self.metrics and not (has_ended or sequence.is_counted):
                sequence.on_late_end = partial(self.account.add_late, self.metrics.name, num_known)
        self.sequences.clear()
        if self.model:
            if self.adapter:
                self.model.adapters.let_go(self.adapter)
                self.adapter = None
            self.model.release()
            self.model = None

    def tell_tops(self, num_top_tokens: int) -> None:
        """Take how many of the most probable tokens to tell. Raises InvalidRequest if they are too many."""
        if num_top_tokens > MAX_TOP_TOKENS:
            raise InvalidRequest("num_top_tokens", f"must be at most {MAX_TOP_TOKENS}, not {num_top_tokens}")
        self.num_top_tokens = num_top_tokens


def check_cache_salt(cache_salt: str) -> None:
    """Raise InvalidRequest for a salt that is too long or not printable ASCII."""
    _check_printable("cache_salt", cache_salt, MAX_CACHE_SALT)


def _check_printable(field: str, text: str, longest: int) -> None:
    if not _is_printable(text, longest):
        raise InvalidRequest(field, f"must be at most {longest} printable ASCII characters")


def _is_printable(text: str, longest: int) -> bool:
    return len(text) <= longest and text.isascii() and text.isprintable()


REQUEST_CONTEXT: ContextVar[RequestContext] = ContextVar("weft_call")
