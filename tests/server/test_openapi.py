"""/openapi.json says what the HTTP port serves, and /docs shows it and asks nobody else."""

import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from http_calls import ask, asked, head, served
from intercepted import TOKENS, run
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.api.connect_operations import EXAMPLES
from weft_server.api.connect_protocol import connect_routes
from weft_server.api.docs_routes import DOCUMENT_PATH, PAGE_PATH, document_of, with_docs
from weft_server.api.protojson import to_json
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api import endpoint as endpoints
from weft_server.openai_api.forms import FORM
from weft_server.openai_api.routes import ENDPOINTS, openai_routes, refuse_path

BOTH = (DOCUMENT_PATH, PAGE_PATH)
SERVED = [method for method in METHODS.values() if method.service in SERVICES]


def all_routes():
    """Those of a server."""
    return with_docs((*connect_routes(SERVICES, 1 << 20), *openai_routes(ModelRegistry([]), 1 << 20)), refuse_path)


@pytest.fixture(scope="module")
def document():
    """What a server says of itself."""
    return json.loads(document_of(all_routes()))


def judge(document, schema):
    """What says whether something fits a schema of the document."""
    return Draft202012Validator({**schema, "components": document["components"]})


def asked_in(document, path):
    """(media type, what is said of it) of a POST."""
    ((media_type, said),) = document["paths"][path]["post"]["requestBody"]["content"].items()
    return media_type, said


def test_it_is_a_document_of_openapi(document):
    """By the specification's own schema. It has each schema that it names, and no other."""
    OpenAPIV31SpecValidator(document).validate()
    named = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(document["components"]["schemas"]) == set(named)


def test_it_has_each_route_and_no_other(document):
    """Both ways: what it says is a route, and what is a route it says."""
    said = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}

    told = [each for each in all_routes() if each.describe]
    assert {(each.method, each.path.replace("*", "{model}")) for each in told} == said
    assert {("POST", method.path) for method in SERVED} < said
    assert {("GET", path) for path in BOTH} < said


def test_each_field_is_explained(document):
    """In the words of the contracts and of the table of endpoints."""
    silent = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        if name.startswith("weft.v1.") or name.endswith("Request")
        for field, about in schema.get("properties", {}).items()
        if not about.get("description")
    ]
    assert [] == silent
    methods = [document["paths"][method.path]["post"] for method in SERVED]
    assert all(each["summary"] and each["description"].startswith(each["summary"]) for each in methods)
    assert [] == [each["summary"] for each in methods if each["summary"].count("(") != each["summary"].count(")")]
    schemas = document["components"]["schemas"]
    assert schemas["weft.v1.GenerateRequest"]["properties"]["messages"]["description"].startswith(
        "messages are a chat;"
    )
    assert schemas["weft.v1.GenerateRequest"]["description"].endswith("At most one of text, tokenIds, messages.")
    assert "FINISH_REASON_STOP: the model produced" in schemas["weft.v1.FinishReason"]["description"]


OTHERS = {FieldDescriptor.TYPE_STRING: "x", FieldDescriptor.TYPE_BYTES: b"\xff\xfe", FieldDescriptor.TYPE_BOOL: True}


def filled(described):
    """A message in which each field is set, of each oneof the last."""
    message = GetMessageClass(described)()
    for field in described.fields:
        if field.message_type:
            value = filled(field.message_type)
        elif field.enum_type:
            value = field.enum_type.values[-1].number
        else:
            value = OTHERS.get(field.type, 7)
        if field.message_type and not field.is_repeated:
            getattr(message, field.name).CopyFrom(value)
        elif field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
    return message


@pytest.mark.parametrize("method", SERVED, ids=lambda method: method.name)
def test_what_is_written_fits_its_schema(document, method):
    """A message with each of its fields, as it goes out. And the schema refuses what the server does."""
    for kind in (method.request, method.response):
        fits = judge(document, {"$ref": f"#/components/schemas/{kind.DESCRIPTOR.full_name}"})
        whole = json.loads(to_json(filled(kind.DESCRIPTOR)))
        assert [] == [error.message for error in fits.iter_errors(whole)]
        assert not fits.is_valid(whole | {"nothing": 1})
        assert not any(fits.is_valid(whole | {name: object()}) for name in whole)


@pytest.mark.parametrize("method", SERVED, ids=lambda method: method.name)
def test_an_example_is_a_request(document, method):
    """It fits the schema, and the server's reader."""
    _, said = asked_in(document, method.path)

    assert [] == list(judge(document, said["schema"]).iter_errors(said["example"]))
    assert said["example"] == json_format.MessageToDict(json_format.ParseDict(said["example"], method.request()))
    assert {name.removeprefix("Stream") for name in METHODS} == set(EXAMPLES)


def test_an_endpoint_s_example_is_a_request(document):
    """It fits the schema and the server's reader, and what is not taken is said to be so."""
    with_bodies = [each for each in ENDPOINTS if each.fields]
    for endpoint in with_bodies:
        media_type, said = asked_in(document, endpoint.path)
        example = said["example"]
        if media_type == FORM:
            assert endpoint.fields.convert(dict(example))
            example = example | {"file": ""}
        else:
            assert endpoint.fields.read(json.dumps(example).encode())
        fits = judge(document, said["schema"])
        assert [] == list(fits.iter_errors(example))
        assert not fits.is_valid(example | {"nothing": 1})
        for name, _, harmless in endpoint.fields.refused:
            assert all(fits.is_valid(example | {name: each}) for each in (None, *harmless))
            assert not fits.is_valid(example | {name: "something else"})
    assert {each.path for each in with_bodies} == set(endpoints.EXAMPLES)


def test_the_page_runs_what_it_brings_and_asks_this_server():
    """Its policy allows its own style and script by their hashes, and requests to this origin, and nothing else."""

    async def scenario():
        routes = with_docs((), refuse_path)
        async with served(routes=routes, refuse=refuse_path) as server:
            for _ in range(2):
                status, headers, body = await ask(server, head(PAGE_PATH, method="GET"))
                policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
                assert (200, "text/html; charset=utf-8", "nosniff") == (
                    status, headers["content-type"], headers["x-content-type-options"],
                )  # fmt: skip
            page = body.decode()
            assert page.startswith("<!doctype html>")
            for kind in ("style", "script"):
                (inline,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
                # What `ask` gives of headers is in lower case.
                hashed = b64encode(sha256(inline.encode()).digest()).decode().lower()
                assert f"'sha256-{hashed}'" == policy.pop(f"{kind}-src")
            assert {
                "default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'",
                "form-action": "'none'", "frame-ancestors": "'none'",
            } == policy  # fmt: skip
            assert [] == re.findall(r"<[^>]* (?:src|href)=\"(?!openapi\.json|data:)", page)
            assert not re.search(r"innerHTML|eval\(|localStorage", page)
            assert len(body) < 15_000
            status, headers, body = await ask(server, head(DOCUMENT_PATH, method="GET"))
            assert (200, "application/json", document_of(routes)) == (status, headers["content-type"], body)

    run(scenario())


def test_the_document_is_for_who_may_call(tmp_path):
    """A stranger sees there what is at any other path, and the page, which is the same for all. A token opens it."""

    async def scenario():
        async with served(tmp_path, tokens=TOKENS, routes=with_docs((), refuse_path), refuse=refuse_path) as server:
            seen = []
            for path in (DOCUMENT_PATH, "/nothing"):
                status, headers, body = await ask(server, asked(b"", path, method="GET"))
                headers.pop("date")
                seen.append((status, headers, body))
            assert (401, [seen[0]] * 2) == (seen[0][0], seen)
            shown = []
            for caller in ((), ("authorization: Bearer token-of-the-caller",), ("authorization: Bearer of-nobody",)):
                status, _, body = await ask(server, head(PAGE_PATH, *caller, method="GET"))
                shown.append((status, body))
            assert (200, [shown[0]] * 3) == (shown[0][0], shown)
            known = head(DOCUMENT_PATH, "authorization: Bearer token-of-the-caller", method="GET")
            assert 200 == (await ask(server, known))[0]

    run(scenario())


def test_a_stream_is_described_as_one(document):
    """A method that streams takes and gives envelopes of another media type, and no other method does."""
    for method in SERVED:
        about = document["paths"][method.path]["post"]
        media_type = "application/connect+json" if method.streams else "application/json"
        assert [media_type] == list(about["requestBody"]["content"]) == list(about["responses"]["200"]["content"])
        assert (method.name, method.streams) == (method.name, "one envelope" in about["description"])
