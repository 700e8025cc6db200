"""What docs/other-languages.md promises of Envoy in front of a server: a real Envoy with the committed file."""

import base64
import json
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import weft
from envoy import envoy, needs_envoy
from process import ServerProcess, stuck_reader

SHORT = {"text": "Return the", "decoding": {"max_new_tokens": 4}}

pytestmark = [pytest.mark.e2e, needs_envoy]


def post(target, method, request):
    """(status, lines) of a JSON call. What is no JSON, Envoy itself has said: it comes as a text."""
    body, headers = json.dumps(request).encode(), {"content-type": "application/json"}
    try:
        call = urllib.request.Request(f"http://{target}/weft.v1.{method}", body, headers)
        with urllib.request.urlopen(call, timeout=60) as answer:
            # Read as a whole, one that was cut short is an error. Line by line it would be a line that is no JSON.
            return answer.status, [json.loads(line) for line in answer.read().splitlines() if line.strip()]
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode()
        try:
            return error.code, [json.loads(said)]
        except json.JSONDecodeError:
            return error.code, [said]


@pytest.fixture(scope="module")
def target(server, tmp_path_factory):
    """Envoy before the demo models."""
    with envoy(tmp_path_factory.mktemp("envoy"), [server.target]) as target:
        yield target


def test_json_asks_for_every_task(target, scene, digit):
    """Text and pictures (base64) go in, and answers in the contracts' own names come out, zeros included."""

    def ask(method, **request):
        status, (answer,) = post(target, method, request)
        assert 200 == status
        return answer

    picture, label = digit
    scene, digit = (base64.b64encode(each).decode() for each in (scene, picture))
    translated = ask("TranslationService/Translate", text="we are eating bread")
    tagged = ask("ClassificationService/Tag", text="Maria Silva sent 25 euros")

    assert "estamos comiendo pan" == translated["completion"]["text"]
    assert "FINISH_REASON_STOP" == translated["completion"]["finish_reason"]
    assert {"start": 0, "end": 11, "text": "Maria Silva"}.items() <= tagged["spans"][0].items()
    assert label == ask("ClassificationService/Classify", image={"data": digit}, top_k=1)["labels"][0]["label"]
    assert ask("ClassificationService/Classify", text="a window with a button")["labels"]
    assert ask("CaptionService/Caption", image={"data": scene})["completion"]["text"]
    assert ask("GenerationService/Generate", **SHORT)["completion"]["token_ids"]


def test_a_json_stream_is_a_line_for_each_message(target):
    """Deltas come first, and the last line is `final`."""
    status, lines = post(target, "GenerationService/StreamGenerate", {"request": {"text": "Open a file and"}})

    assert 200 == status
    assert ["delta"] * (len(lines) - 1) + ["final"] == [key for line in lines for key in line]
    assert lines[-1]["final"]["completion"]["text"] == "".join(line["delta"]["text"] for line in lines[:-1])


def test_json_errors_have_details(target):
    """A refusal is an HTTP status and JSON that says why and where; an unknown method is not found."""
    status, (error,) = post(target, "TranslationService/Translate", {"text": ""})

    assert (400, 3, "text must not be empty") == (status, error["code"], error["message"])
    assert ["EMPTY_INPUT"] == [detail["reason"] for detail in error["details"] if "reason" in detail]
    assert ["text"] == [each["field"] for detail in error["details"] for each in detail.get("field_violations", ())]
    status, (said,) = post(target, "TranslationService/Nope", {})
    assert (404, str) == (status, type(said))


def test_the_sdk_speaks_tls_to_envoy(server, tmp_path):
    """With the commented part of the file and a certificate, the SDK's calls and typed errors pass."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; it makes the certificate")
    files = ["-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *names]
    subprocess.run(command, check=True, capture_output=True)
    credentials = grpc.ssl_channel_credentials((tmp_path / "tls.crt").read_bytes())
    with envoy(tmp_path, [server.target], tls=True) as target, weft.Client(target, credentials=credentials) as client:
        assert "estamos comiendo pan" == client.translate("we are eating bread").text
        with pytest.raises(weft.InvalidRequest, match="empty"):
            client.translate("")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "sdk"])
def test_no_call_through_envoy_is_lost_while_a_server_drains(demo_repository, tmp_path, kind):
    """One of two servers drains for seconds, and then is gone: every call is answered."""
    answers, failures, until = [], [], threading.Event()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/pydocs").symlink_to(demo_repository / "pydocs")

    def by_json(target):
        status, lines = post(target, "GenerationService/Generate", SHORT)
        (answers if status == 200 else failures).append((status, lines))

    def by_sdk(client):
        try:
            answers.append(client.generate("Return the", decoding=weft.Decoding(max_new_tokens=4)))
        except weft.Error as error:
            failures.append(error)

    def run(ask, whom):
        while not until.is_set():
            ask(whom)

    def server():
        return ServerProcess(tmp_path / "models", drain_timeout_s=4)

    with server() as one, server() as other, ThreadPoolExecutor(16) as pool:
        one.wait_for("ready")
        other.wait_for("ready")
        with envoy(tmp_path, [one.target, other.target]) as target, weft.Client(target) as client, stuck_reader(one):
            asked = [pool.submit(run, *((by_sdk, client) if kind == "sdk" else (by_json, target))) for _ in range(16)]
            try:
                one.wait_until(lambda: len(answers) > 100)
                one.process.send_signal(signal.SIGTERM)
                assert 0 == one.exit_code()
                gone = len(answers)
                other.wait_until(lambda: len(answers) > gone + 100)
            finally:
                until.set()
                for future in asked:
                    future.result(30)
    assert [] == failures
