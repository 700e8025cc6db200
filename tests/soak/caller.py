"""Makes one call, with the fault that befalls it, and says how it ended."""

import asyncio
import random
from contextlib import aclosing
from typing import NamedTuple

import faults
import grpc
from faults import SOON_S

import weft
from weft._status import error_of

# Seconds after which a call that has no end counts as lost. Its own deadline is before that.
LIMIT_S = 45.0
TIMEOUT_S = 30.0
# What a slow reader waits after each message.
SLOW_S = 0.3
# What gRPC refuses by itself for a server that is flooded. On the wire it is a bare CANCELLED.
SHED = "SHED"
_GARBAGE = b"\xff\xff\xff"
# Of the calls by HTTP; and of these, where it can be asked so, by OpenAI's API.
BY_HTTP, BY_OPENAI = 0.4, 0.5


class Ended(NamedTuple):
    """A call that is over. `due` is seconds since its stretch of the load began, `seconds` is since it was due."""

    stretch: int
    due: float
    seconds: float
    task: str
    name: str
    fault: str
    code: str
    is_wrong: bool = False

    @property
    def is_refused(self):
        """Whether the server said that it has too much to do."""
        return self.code in {"RESOURCE_EXHAUSTED", SHED}

    @property
    def is_lost(self):
        """Whether it has no end, or one that nothing explains."""
        return not self.is_refused and self.code not in faults.ENDS[self.fault]


class Caller:
    """Calls by the client's verbs. `clients` has one for each priority, and one that takes no bytes before it reads.

    Those whose keys begin with HTTP are asked so.
    """

    def __init__(self, clients, golden, seed):
        self._clients, self._golden, self._chance = clients, golden, random.Random(seed)

    async def call(self, ask, fault):
        """(name, status, whether the answer is wrong) of one call."""
        if fault in {"bad input", "unknown"}:
            bad = self._chance.choice(faults.BAD if fault == "bad input" else faults.UNKNOWN)
            return f"{fault}: {bad.verb}", await _end(self._send_bad(bad, fault)), False
        number, answers = self._chance.randrange(len(ask.inputs)), []
        key = "slow reader" if fault == "slow reader" else ask.priority
        by_http = ("HTTP", key) in self._clients and self._chance.random() < BY_HTTP
        client = self._clients["HTTP", key] if by_http else self._clients[key]
        way = ", by HTTP" if by_http else ""
        if by_http and ask.can_complete and fault in {"none", "cancel"} and self._chance.random() < BY_OPENAI:
            code = await _end(self._complete(client, ask, number, fault, answers))
            is_wrong = any(self._golden.is_wrong_text(ask, number, text) for text in answers)
            return f"{ask.name}, by OpenAI's API", code, is_wrong
        streams = ask.can_stream and (fault == "slow reader" or self._chance.random() < 0.5)
        code = await _end(self._ask(client, ask, number, fault, answers, streams=streams))
        is_wrong = any(self._golden.is_wrong(ask, number, answer) for answer in answers)
        return f"{ask.name}{', stream' if streams else ''}{way}", code, is_wrong

    async def _complete(self, client, ask, number, fault, answers):
        (prompt,), options = ask.arguments(number)
        leaves_after = self._chance.randrange(8) if fault == "cancel" else None
        num_pieces, text = 0, ""
        pieces = client.complete(options["model"], prompt, options["decoding"].max_new_tokens, fault)
        async with aclosing(pieces):
            async for piece in pieces:
                num_pieces, text = num_pieces + 1, text + piece
                if num_pieces == leaves_after:
                    return "CANCELLED"
        answers.append(text)
        return "OK"

    async def _ask(self, client, ask, number, fault, answers, *, streams):
        given, options = ask.arguments(number)
        options = options | {"request_id": fault}
        timeout = self._chance.uniform(0.001, SOON_S) if fault == "deadline" else TIMEOUT_S
        if streams:
            stream = getattr(client, f"stream_{ask.verb}")(*given, timeout=timeout, **options)
            if await self._read(stream, fault):
                answers.append(stream.result)
            return "OK" if answers else "CANCELLED"
        async with asyncio.timeout(self._chance.uniform(0, SOON_S) if fault == "cancel" else None):
            answers.append(await getattr(client, ask.verb)(*given, timeout=timeout, **options))
        return "OK"

    async def _read(self, stream, fault):
        """Read a stream. Returns whether it was read to its end."""
        leaves_after = self._chance.randrange(8) if fault == "cancel" else None
        num_pieces, text = 0, ""
        async with stream:
            if leaves_after == 0:
                await asyncio.sleep(self._chance.uniform(0, SOON_S))
                return False
            async for piece in stream:
                num_pieces, text = num_pieces + 1, text + piece
                if num_pieces == leaves_after:
                    return False
                if fault == "slow reader":
                    await asyncio.sleep(SLOW_S)
            # A search and several answers come in no pieces.
            assert text in {"", stream.result.text}, "the pieces of a stream are not its answer"
        return True

    async def _send_bad(self, bad, fault):
        client = self._clients[None]
        if bad is faults.GARBAGE:
            await client._channel.unary_unary("/weft.v1.TranslationService/Translate")(_GARBAGE, timeout=TIMEOUT_S)
        else:
            await getattr(client, bad.verb)(*bad.given, timeout=TIMEOUT_S, request_id=fault, **bad.options)
        return "OK"


async def _end(call):
    """Wait for a call's end, and say its status."""
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=LIMIT_S)
    if not done:
        task.cancel()
        return "no end"
    try:
        return task.result()
    except TimeoutError:
        return "CANCELLED"
    except grpc.RpcError as error:
        return _status(error_of(error, ""), error)
    except weft.Error as error:
        return _status(error, error.__cause__)
    except Exception as error:  # noqa: BLE001 - whatever it is, the call is lost, and the load goes on
        return repr(error)


def _status(error, cause):
    """The status of an error that the server sent. What the client says itself is no status."""
    if not isinstance(cause, grpc.RpcError):
        return f"client: {error}"
    return SHED if error.reason == SHED else cause.code().name
