"""A real process with TLS and tokens: its callers, a rotation under them, and a log without secrets."""

import json
import os
import ssl
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

import weft
from certificates import Authority
from intercepted import methods
from pictures import png
from process import ServerProcess
from weft_proto.inference import open_inference_pb2
from weft_proto.v1 import (
    caption_pb2,
    classification_pb2,
    common_pb2,
    generation_pb2,
    model_pb2,
    score_pb2,
    tokenization_pb2,
    translation_pb2,
)

pytestmark = pytest.mark.e2e
WEFT = Path(sys.executable).with_name("weft")
AUTHORITY = Authority()
TOKEN, WRONG = "token-of-the-caller-Xq7", "token-of-nobody-Xq7"
SCRAPER = {"Authorization": "Bearer token-of-the-scraper"}
OTHER = "token-of-a-neighbour-Xq7"
TOKENS = f"caller call {TOKEN}\nneighbour call {OTHER}\nscraper metrics token-of-the-scraper\n"
# Letters that no log has by chance.
MARK = "Xq7zmarkedXq7z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of a server's credentials, and what its callers trust."""
    folder = tmp_path_factory.mktemp("credentials")
    AUTHORITY.issue().write(folder)
    (folder / "ca.crt").write_bytes(AUTHORITY.certificate)
    (folder / "tokens").write_text(TOKENS)
    (folder / "tokens").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def server(demo_repository, folder):
    """A server that asks who calls."""
    files = {"tls_cert": folder / "tls.crt", "tls_key": folder / "tls.key", "tokens": folder / "tokens"}
    with ServerProcess(demo_repository, log_level="debug", access_log="all", prefix_cache_mb=16, **files) as server:
        server.wait_for("ready")
        yield server


def client_of(server, authority=AUTHORITY, token=TOKEN):
    """A client that trusts an authority."""
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    return weft.Client(server.target, credentials=credentials, token=token, timeout=30)


def command(server, folder, *argv, token=TOKEN):
    """Run `weft` with TLS and a token; (exit code, stdout, stderr)."""
    environment = {"PATH": os.environ["PATH"], "WEFT_TARGET": server.target, "WEFT_CA": str(folder / "ca.crt")}
    environment |= {"WEFT_TOKEN": token} if token else {}
    done = subprocess.run([WEFT, *argv], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_and_the_bench_go_by_tls_and_token(server, folder):
    """An answer, a load, and without a token one line that says so."""
    assert 0 == command(server, folder, "translate", "we are eating bread")[0]
    code, out, _ = command(server, folder, "bench", "--model", "topics", "--requests", "20", "-c", "2", "--json")
    assert (0, 20) == (code, json.loads(out)["requests"])
    assert TOKEN not in out
    code, _, said = command(server, folder, "translate", "we are eating bread", token="")
    assert (1, 1) == (code, said.count("\n"))
    assert "wants to know who calls" in said


def test_a_handshake_that_fails_is_one_line_at_most(server, tmp_path):
    """The caller's command says why in a line of its own. Nothing but our own events is in the server's log."""
    (tmp_path / "ca.crt").write_bytes(Authority("another authority").certificate)
    code, out, said = command(server, tmp_path, "translate", "we are eating bread")
    assert (1, "", 1) == (code, out, said.count("\n"))
    assert "certificate is not trusted" in said
    assert all("level" in event for event in server.log)


def test_the_http_port_speaks_tls(server):
    """Probes are open, metrics are not; the one says when the certificate ends."""
    trust = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    assert (200, "ok\n") == server.get("/readyz", trust)
    assert 401 == server.get("/metrics", trust)[0]
    status, text = server.get("/metrics", trust, **SCRAPER)
    (expiry,) = [line for line in text.splitlines() if line.startswith("weft_certificate_expiry")]
    assert (200, True) == (status, float(expiry.split()[1]) > time.time())


def test_a_neighbour_learns_nothing_of_a_prompt(server):
    """What one caller has had read is kept for that caller alone, with the same salt too."""
    prompt = "def read the named file and return each line " * 4
    decoding = weft.Decoding(max_new_tokens=2)
    with client_of(server) as client, client_of(server, token=OTHER) as neighbour:
        asked = [client, client, client, neighbour, neighbour, neighbour]
        cached = [each.generate(prompt, decoding=decoding, cache_salt="x").usage.cached_tokens for each in asked]

    assert cached[:3] == cached[3:]
    assert cached[0] == 0 < cached[2]


def text_in_a_png(text):
    """A picture with a comment."""
    data = png(8, 8)
    chunk = b"tEXtComment\0" + text.encode()
    return data[:33] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[33:]


def bases(scene):
    """A good request for each unary method."""
    image = common_pb2.Image(data=scene)
    pydocs = common_pb2.ModelSelector(name="pydocs")
    tensor = open_inference_pb2.ModelInferRequest(model_name="topics")
    # Its second text is the mark.
    tensor.inputs.add(name="text", datatype="BYTES", shape=[2]).contents.bytes_contents.append(b"open the named file")
    return {
        "Translate": translation_pb2.TranslateRequest(text="we are eating bread"),
        "Caption": caption_pb2.CaptionRequest(image=image),
        "Classify": classification_pb2.ClassifyRequest(text="open the named file"),
        "Tag": classification_pb2.TagRequest(text="Maria Silva is in Lisbon"),
        "Generate": generation_pb2.GenerateRequest(text="def"),
        "Score": score_pb2.ScoreRequest(model=pydocs, text="def", target_text="open"),
        "Tokenize": tokenization_pb2.TokenizeRequest(model=pydocs, text="def"),
        "Detokenize": tokenization_pb2.DetokenizeRequest(model=pydocs, token_ids=[5, 6]),
        "GetModel": model_pb2.GetModelRequest(model=pydocs),
        "ListModels": model_pb2.ListModelsRequest(),
        "ModelInfer": tensor,
    }


def marked(kind, depth=5):
    """Functions that each put a mark into another field of a message of that kind, by the field's path."""
    for field in kind.fields if depth else ():
        if field.name in {"request_id", "id"}:  # a caller's own name for a request, made to be found in the log
            continue
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for path, put in marked(field.message_type, depth - 1):
                yield f"{field.name}.{path}", lambda message, name=field.name, put=put: put(_inner(message, name))
        elif field.type in {field.TYPE_STRING, field.TYPE_BYTES}:
            values = [MARK] if field.type == field.TYPE_STRING else [MARK.encode() * 9, text_in_a_png(MARK)]
            for value in values:
                yield field.name, lambda message, name=field.name, value=value: _put(message, name, value)


def _inner(message, name):
    inner = getattr(message, name)
    if isinstance(inner, Message):
        inner.SetInParent()
        return inner
    return inner.add()


def _put(message, name, value):
    if isinstance(getattr(message, name), (str, bytes)):
        setattr(message, name, value)
    else:
        getattr(message, name).append(value)


def test_the_log_holds_no_text_no_picture_and_no_token(server, folder, scene):
    """After every string and every picture of every request has been sent, well and wrongly.

    It is at level debug, with a line for each call.
    Refusals may quote what they refuse to who sent it. They show no traceback.
    """
    good, codes, shown = bases(scene), set(), []
    options = [("grpc.enable_retries", 0)]
    credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate)
    with grpc.secure_channel(server.target, credentials, options=options) as channel:

        def send(method, data, token):
            said = [("authorization", f"Bearer {token}"), ("traceparent", MARK)]
            call = channel.unary_stream(method)(data, metadata=said, timeout=30)
            with suppress(grpc.RpcError):
                list(call)
            codes.add(call.code().name)
            shown.append(f"{call.details()}{call.trailing_metadata()}")

        for method in methods():
            name = method.rpartition("/")[2]
            base = good.get(name.removeprefix("Stream"))
            if base is None:  # of a service that this port does not have
                continue
            stream = name.startswith("Stream")
            for _, put in [("", lambda _: None), *marked(base.DESCRIPTOR)]:
                request = type(base).FromString(base.SerializeToString())
                put(request)
                if "request_id" in request.DESCRIPTOR.fields_by_name:
                    request.request_id = "traced"
                data = request.SerializeToString()
                data = b"\x0a" + _varint(len(data)) + data if stream else data
                send(method, data, TOKEN)
            send(method, MARK.encode(), TOKEN)
            send(method, base.SerializeToString(), f"{WRONG}{MARK}")
        send(f"/weft.v1.TranslationService/{MARK}", b"", TOKEN)
        send(f"/weft.v1.TranslationService/{MARK}", b"", WRONG)
        send("/grpc.health.v1.Health/Check", b"\x0a\x0e" + MARK.encode(), TOKEN)
    trust = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    for path in (f"/{MARK}", f"/metrics?{MARK}", "/livez"):
        server.get(path, trust, Authorization=f"Bearer {WRONG}{MARK}")
    server.wait_until(lambda: len(shown) <= len(server.calls()), what="a line of each call")

    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "UNIMPLEMENTED"} <= codes
    assert not codes & {"INTERNAL", "UNKNOWN"}
    assert not [text for text in shown if "Traceback" in text or ".py" in text]
    log = json.dumps(server.log)
    assert codes <= {event["code"] for event in server.calls()}
    assert '"traced"' in log
    assert '"tenant": "caller"' in log
    assert [] == [word for word in (MARK, MARK.encode().hex(), TOKEN, WRONG, "token-of") if word in log]


def _varint(number):
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


def test_credentials_rotate_under_a_running_stream(server, folder):
    """New certificate of another authority, new tokens: the stream ends well, and the old ones are no use to others."""
    other = Authority("another")
    decoding = weft.Decoding(max_new_tokens=250, min_new_tokens=250)
    with client_of(server) as old:
        stream = old.stream_generate("def", decoding=decoding)
        next(stream)
        other.issue().write(folder)
        (folder / "tokens").write_text(TOKENS.replace(TOKEN, "another-token-of-the-caller"))
        server.wait_until(lambda: 2 == sum(event["event"] == "took new credentials" for event in server.log))
        with client_of(server, other, "another-token-of-the-caller") as new:
            assert new.list_models()
        with pytest.raises(weft.AccessDenied), client_of(server, other) as late:
            late.list_models()
        with pytest.raises(weft.Unavailable), client_of(server, token="another-token-of-the-caller") as late:
            late.list_models()
        list(stream)
        assert 250 == len(stream.result.token_ids)
    assert [] == [event for event in server.log if event["event"] in {"bug", "kept the old credentials"}]
    assert 0 == server.terminate()


def test_a_server_says_what_is_wrong_with_its_credentials(demo_repository, folder):
    """At the start, in one line for each, with exit code 1."""
    settings = ["--tls-cert", folder / "tls.crt", "--tls-key", folder / "ca.crt", "--tokens", folder / "nothing"]
    done = subprocess.run(
        [WEFT, "serve", demo_repository, *settings], capture_output=True, text=True, check=False, timeout=60
    )
    lines = done.stderr.splitlines()

    assert (1, "") == (done.returncode, done.stdout)
    assert ["--tls-key (WEFT_TLS_KEY)", "--tokens (WEFT_TOKENS)"] == [
        line.removeprefix("weft serve: ").partition(": /")[0] for line in lines
    ]
