"""OpenAI's requests without HTTP: routes over models that are loaded in this process, and what a client would see."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from functools import cache

import msgspec
from jsonschema import Draft202012Validator

from loaded import Loaded
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.api.http_messages import HttpStream
from weft_server.api.refusal import Refused, refusal_of
from weft_server.config import read_config
from weft_server.errors import RequestError
from weft_server.models.allowed_models import ALL_MODELS
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.openai_api.answer_schemas import SCHEMAS, answer_of
from weft_server.openai_api.api_request import ApiRequest
from weft_server.openai_api.error_bodies import error_response
from weft_server.openai_api.routes import ENDPOINTS
from weft_server.rpc.services import behaviours
from weft_server.structured_output.token_bytes import has_seams, spelling_of
from weft_server.transport.status import to_status


def refused(error):
    """What a ApiCaller raises for an error."""
    return Refused(refusal_of(error, to_status(error)))


# To judge takes a microsecond a byte.
MOST_JUDGED = 16_384


@cache
def _judge_of(path):
    """What holds the answers of a path to /openapi.json, which has each field of them."""
    schemas = deepcopy(SCHEMAS)
    _close(schemas)
    return Draft202012Validator(answer_of(path) | {"components": {"schemas": schemas}})


def _close(schema):
    """Let no object have fields that are not named, wherever any are."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema["additionalProperties"] = False
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else []:
        _close(each)


class Behaviours:
    """A ApiCaller that asks what answers gRPC's calls, and notes what was asked."""

    allowed_models = ALL_MODELS

    def __init__(self, methods):
        self._methods = methods

    def name(self):
        """As ApiCaller says."""
        return "r1"

    def claim(self, priority):
        """As ApiCaller says. Nobody waits here."""

    async def unary(self, method, request):
        """As ApiCaller says, in a context of its own."""
        return await asyncio.create_task(self._ask(method, request))

    async def stream(self, method, request):
        """As ApiCaller says."""
        REQUEST_CONTEXT.set(RequestContext(method.name))
        try:
            async for response in self._methods[method.name](request, None):
                yield response
        except RequestError as error:
            raise refused(error) from None

    async def _ask(self, method, request):
        REQUEST_CONTEXT.set(RequestContext(method.name))
        try:
            return await self._methods[method.name](request, None)
        except RequestError as error:
            raise refused(error) from None


class Scripted:
    """A ApiCaller whose answers a test has written. A request that is an error is raised."""

    allowed_models = ALL_MODELS

    def __init__(self, *answers):
        self.answers, self.asked, self.claimed = list(answers), [], []
        # Of a unary call that comes before a stream.
        self.first = None

    def claim(self, priority):
        """Note what is claimed."""
        self.claimed.append(priority.name)

    def name(self):
        """As ApiCaller says."""
        return "r1"

    async def unary(self, method, request):
        """The next answer."""
        self.asked.append((method.name, request))
        if self.first is not None:
            return self.first
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise refused(answer)
        return answer

    async def stream(self, method, request):
        """All answers."""
        self.asked.append((method.name, request))
        for answer in self.answers:
            if isinstance(answer, Exception):
                raise refused(answer)
            yield answer


class Client:
    """Sends requests to the routes, and reads what comes back."""

    def __init__(
        self,
        caller,
        task=common_pb2.TASK_GENERATE,
        spelling_of=lambda _: None,
        priority="",
        has_seams=lambda _: True,
        call_format="",
    ):
        self.caller, self._priority, self._has_seams = caller, priority, has_seams
        self._call_format = call_format
        self._task_of = task if callable(task) else lambda _: task
        self._spelling_of = spelling_of

    async def send(self, verb, path, body=b"", content_type="application/json", parameter=""):
        """The status, the headers and the body of an answer; of a stream, the data of its events."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        answer = await self.answer(verb, path, data, content_type, parameter)
        if isinstance(answer, HttpStream):
            return 200, {}, await _events(answer)
        assert answer.content_type.startswith("text/plain") or answer.body.startswith(b"{")
        shown = msgspec.json.decode(answer.body) if answer.content_type == "application/json" else answer.body.decode()
        if answer.status == 200 and isinstance(shown, dict) and len(answer.body) < MOST_JUDGED:
            assert [] == [error.message for error in _judge_of(path).iter_errors(shown)], "see answer_schemas"
        return answer.status, dict(answer.headers), shown

    async def answer(self, verb, path, data, content_type, parameter=""):
        """What a route returns."""
        (endpoint,) = (each for each in ENDPOINTS if (each.verb, each.path) == (verb, path))
        request = ApiRequest(
            self.caller,
            self._task_of,
            self._spelling_of,
            lambda _: self._call_format,
            self._has_seams,
            "r1",
            data,
            content_type,
            parameter,
            priority=self._priority,
        )
        try:
            return await endpoint.handler(request)
        except Refused as told:
            return error_response(told.refusal, endpoint.params)
        except RequestError as error:
            return error_response(refused(error).refusal, endpoint.params)

    async def post(self, path, /, **body):
        """What is answered to a POST that must not be refused."""
        status, _, answer = await self.send("POST", path, body)
        assert 200 == status, answer
        return answer

    async def refusal(self, path, /, **body):
        """(status, param, code) of a POST that is refused."""
        status, _, answer = await self.send("POST", path, body)
        return status, answer["error"]["param"], answer["error"]["code"]


def form(file, **fields):
    """The arguments that send a form."""
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts.append(('name="file"; filename="a.wav"', file))
    said = b"".join(b"--B\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (h.encode(), v) for h, v in parts)
    return said + b"--B--\r\n", "multipart/form-data; boundary=B"


async def _events(stream):
    data = []
    async for chunk in stream.chunks:
        assert chunk.endswith(b"\n\n")
        data.append(chunk)
    return [each if each.startswith(b":") else _data(each) for each in data]


def _data(chunk):
    assert chunk.startswith(b"data: ")
    assert 1 == chunk.count(b"\n\n")
    text = chunk[len(b"data: ") : -2]
    return text.decode() if text == b"[DONE]" else msgspec.json.decode(text)


@asynccontextmanager
async def serving(repository, *names, **settings):
    """A Client of some models of a repository."""
    async with AsyncExitStack() as stack:
        entries = []
        for name in names:
            model = await stack.enter_async_context(
                Loaded(repository / name / "1", **{"slots": 4, "lanes": 1} | settings)
            )
            entries.append(RegistryEntry(name, 1, model.bundle.directory, model_pb2.MODEL_STATE_READY, model=model))
        registry = ModelRegistry(entries)
        caller = Behaviours(behaviours(registry, read_config(repository=entries[0].directory)))
        vocabularies = {
            entry.name: entry.model.target_tokenizer.vocabulary
            for entry in entries
            if entry.model.manifest.text.target_tokenizer
        }
        yield Client(
            caller,
            lambda selector: registry.find(selector, ALL_MODELS).task,
            lambda resolved: spelling_of(vocabularies[resolved.name]) if resolved.name in vocabularies else None,
            has_seams=lambda resolved: has_seams(vocabularies[resolved.name]),
        )
