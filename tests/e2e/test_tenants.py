"""A real server and the names of its tokens file: what each used, which models it may ask, how many tokens it may use.

By both doors, and with clients that are not ours.
"""

import threading

import grpc
import openai
import pytest
from google.rpc import error_details_pb2, status_pb2

from process import ServerProcess
from weft_proto.inference import methods as tensor_methods
from weft_proto.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    common_pb2,
    generation_pb2,
    generation_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)

pytestmark = pytest.mark.e2e
RATE = 60
TOKENS = f"""
counted  call     counted-token-0123
narrow   call     narrow-token-01234  models=topics
hasty    call     hasty-token-012345  rate={RATE}/day
calm     call     calm-token-0123456
scraper  metrics  scraper-token-0123
"""
TOKEN_OF = {line.split()[0]: line.split()[2] for line in TOKENS.strip().splitlines()}
PROMPT = "def read the named file"
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"open the file"]}}
DECODING = common_pb2.Decoding(max_new_tokens=5, min_new_tokens=5)


class Server(ServerProcess):
    """Its metrics are asked with a token."""

    headers = {"Authorization": f"Bearer {TOKEN_OF['scraper']}"}  # noqa: RUF012 - it is never changed


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """A server of a writer and a classifier, which asks who calls."""
    folder = tmp_path_factory.mktemp("tenants")
    repository = folder / "models"
    repository.mkdir()
    for name in ("pydocs", "topics"):
        (repository / name).symlink_to(demo_repository / name)
    (folder / "tokens").write_text(TOKENS)
    (folder / "tokens").chmod(0o600)
    with Server(repository, tokens=folder / "tokens", api_port=0) as server:
        server.wait_for("ready")
        yield server


@pytest.fixture(scope="module")
def channel(server):
    """A connection that does not try again by itself."""
    with grpc.insecure_channel(server.target, options=[("grpc.enable_retries", 0)]) as channel:
        yield channel


def of(name):
    """What a call by gRPC shows."""
    return {"metadata": [("authorization", f"Bearer {TOKEN_OF[name]}")], "timeout": 60}


def by_http(server, name):
    """OpenAI's own client."""
    port = server.wait_for("listening")["api"]
    return openai.OpenAI(base_url=f"http://{port}/v1", api_key=TOKEN_OF[name], max_retries=0)


def generate(channel, name, model="pydocs"):
    """The usage of an answer of five tokens."""
    request = generation_pb2.GenerateRequest(text=PROMPT, decoding=DECODING, model=common_pb2.ModelSelector(name=model))
    return generation_pb2_grpc.GenerationServiceStub(channel).Generate(request, **of(name)).completion.usage


def by_tensors(channel, method, **fields):
    """Call a method of the Open Inference Protocol as one whose token opens little."""
    row = tensor_methods.METHODS[method]
    return channel.unary_unary(row.path, row.request.SerializeToString, row.response.FromString)(
        row.request(**fields), **of("narrow")
    )


def refused(ask):
    """(code, reason, seconds to wait) of a call by gRPC that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        ask()
    trailers = dict(caught.value.trailing_metadata())
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details:
        detail.Unpack(info)
        detail.Unpack(retry)
    return caught.value.code().name, info.reason, retry.retry_delay.seconds


def test_what_a_name_used_is_counted_by_both_doors(server, channel):
    """Requests, tokens in and tokens out of each model, as the answers say them; a request by HTTP with two prompts."""
    usage = generate(channel, "counted")
    classified = classification_pb2_grpc.ClassificationServiceStub(channel).Classify(
        classification_pb2.ClassifyRequest(text="open the named file"), **of("counted")
    )
    with by_http(server, "counted") as client:
        by = client.completions.create(model="pydocs", prompt=[PROMPT, PROMPT], max_tokens=5).usage
    figures = {
        (model, what): server.metric(f"weft_tenant_{what}_total", tenant="counted", model=model)
        for model in ("pydocs", "topics")
        for what in ("requests", "input_tokens", "output_tokens")
    }

    assert {
        ("pydocs", "requests"): 2,
        ("pydocs", "input_tokens"): usage.input_tokens + by.prompt_tokens,
        ("pydocs", "output_tokens"): usage.output_tokens + by.completion_tokens,
        ("topics", "requests"): 1,
        ("topics", "input_tokens"): classified.usage.input_tokens,
        ("topics", "output_tokens"): 0,
    } == figures


def test_a_token_opens_its_models_and_tells_of_no_other(server, channel):
    """One that is there and one that is not are refused alike, by each way to name a model."""
    narrow, models = of("narrow"), model_pb2_grpc.ModelServiceStub(channel)
    for name in ("pydocs", "nothing"):
        asks = [
            lambda name=name: generate(channel, "narrow", name),
            lambda name=name: models.GetModel(
                model_pb2.GetModelRequest(model=common_pb2.ModelSelector(name=name)), **narrow
            ),
            lambda name=name: by_tensors(channel, "ModelInfer", model_name=name, inputs=[TENSOR]),
            lambda name=name: by_tensors(channel, "ModelReady", name=name),
            lambda name=name: by_tensors(channel, "ModelMetadata", name=name),
        ]
        assert [("PERMISSION_DENIED", "MODEL_NOT_ALLOWED", 0)] * len(asks) == [refused(ask) for ask in asks]
        with by_http(server, "narrow") as client:
            with pytest.raises(openai.PermissionDeniedError, match=f"does not open model '{name}'") as denied:
                client.completions.create(model=name, prompt=PROMPT)
            assert "model_not_allowed" == denied.value.code
            with pytest.raises(openai.PermissionDeniedError):
                client.models.retrieve(name)
    assert ["topics"] == [each.name for each in models.ListModels(model_pb2.ListModelsRequest(), **narrow).models]
    with by_http(server, "narrow") as client:
        assert ["topics"] == [each.id for each in client.models.list()]
    with by_http(server, "calm") as client:
        assert {"topics", "pydocs"} == {each.id for each in client.models.list()}


def test_a_model_that_is_not_named_is_one_that_is_open(channel):
    """The only classifier is the caller's; of writers it has none, and is told the names of none."""
    asked = classification_pb2.ClassifyRequest(text="open the named file")
    answer = classification_pb2_grpc.ClassificationServiceStub(channel).Classify(asked, **of("narrow"))
    assert "topics" == answer.model.name
    with pytest.raises(grpc.RpcError, match="there are topics") as caught:
        generate(channel, "narrow", "")
    assert grpc.StatusCode.NOT_FOUND == caught.value.code()


def test_a_rate_holds_by_both_doors_and_no_other_caller_pays(server, channel):
    """One floods from four threads until it is refused, and is told to wait. The other gets each of its answers."""
    codes, calm = [], []

    def flood():
        for _ in range(30):
            try:
                generate(channel, "hasty")
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    calm += [generate(channel, "calm").output_tokens for _ in range(20)]
    for thread in threads:
        thread.join()

    assert [5] * 20 == calm
    assert {"OK", "RESOURCE_EXHAUSTED"} == set(codes)
    used = [server.metric(f"weft_tenant_{way}_tokens_total", tenant="hasty") for way in ("input", "output")]
    # Four were on their way when the last token was taken.
    longest = sum(used) / codes.count("OK")
    assert RATE <= sum(used) < RATE + 4 * longest + 1
    code, reason, wait_s = refused(lambda: generate(channel, "hasty"))
    assert ("RESOURCE_EXHAUSTED", "TENANT_TOKEN_RATE", True) == (code, reason, 0 < wait_s < 86400)
    with by_http(server, "hasty") as client:
        with pytest.raises(openai.RateLimitError) as limited:
            client.completions.create(model="pydocs", prompt=PROMPT)
        assert "tenant_token_rate" == limited.value.code
        assert abs(int(limited.value.response.headers["retry-after-ms"]) / 1000 - wait_s) < 60
        # Which models there are is no matter of tokens.
        assert 2 == len(list(client.models.list()))
    assert 0 == server.metric("weft_rejected_total", reason="TENANT_QUEUE_FULL")
