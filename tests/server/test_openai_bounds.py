"""What a small body of OpenAI's API may become is bounded: what its inputs share, and how many run at once."""

import asyncio
import base64
import gc
import threading

import msgspec
import pytest

from http_calls import ask, head, served
from intercepted import entry_of
from openai_calls import Client, Scripted
from weft_proto.decoding import PENALTIES, SAMPLING
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2, model_pb2, score_pb2, tokenization_pb2
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.api import aside
from weft_server.api.http_messages import HttpRequest
from weft_server.calls.concurrent_calls import most_together
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api import (
    batch,
    chat,
    completions,
    embeddings,
    rerank,
    text_answers,
    text_requests,
    tokenize,
)
from weft_server.openai_api.fields import RequestFields
from weft_server.openai_api.routes import ENDPOINTS, openai_routes

CHAT, COMPLETIONS, RERANK, SCORE = "/v1/chat/completions", "/v1/completions", "/v1/rerank", "/v1/score"
EMBEDDINGS = "/v1/embeddings"
LARGE = "x" * 200_000
DONE = generation_pb2.GenerateResponse(completion={"text": "t", "finish_reason": 1})


def refusal(path=COMPLETIONS, task=common_pb2.TASK_GENERATE, **body):
    """(status, param, code) of a POST that nothing is asked for."""
    caller = Scripted()
    refused = asyncio.run(Client(caller, task).refusal(path, **{"model": "m"} | body))
    assert [] == caller.asked
    return refused


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"logit_bias": {str(id_): 1 for id_ in range(1025)}}, "logit_bias", "invalid_field"),
        ({"stop": ["a"] * 5}, "stop", "invalid_field"),
        ({"stop_token_ids": [1] * 1025}, "stop_token_ids", "invalid_field"),
        ({"choice": ["a"] * 1025}, "choice", "invalid_field"),
        ({"regex": "x" * 65_537}, "regex", "constraint_refused"),
        ({"grammar": "x" * 65_537}, "grammar", "constraint_refused"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": "x" * 65_537}}},
         "response_format", "constraint_refused"),
    ],
)  # fmt: skip
def test_a_decoding_has_the_bounds_of_weft(fields, param, code):
    """Before anything is made of it: lists have as many entries as gRPC takes, and constraints as many bytes."""
    assert (400, param, code) == refusal(prompt=["a", "b"], **fields)


def test_a_decoding_is_made_once(monkeypatch):
    """However many prompts share it, and each has it."""
    made = []
    decoding_of = text_requests.decoding_of
    monkeypatch.setattr(text_requests, "decoding_of", lambda asked: made.append(1) or decoding_of(asked))
    caller = Scripted(*[DONE] * 5)

    asyncio.run(Client(caller).post(COMPLETIONS, model="m", prompt=list("abcde"), stop="z"))

    assert [1] == made
    assert [(each, ["z"], "m") for each in "abcde"] == [
        (each.text, list(each.decoding.stop), each.model.name) for _, each in caller.asked
    ]


def test_what_inputs_share_is_bounded():
    """Times their number, by all of its bytes. One alone has the bound of its body."""
    large = "x" * 65_536
    assert (413, "prompt", "message_too_large") == refusal(prompt=["a"] * 256, regex=large)
    assert (413, "prompt", "message_too_large") == refusal(prompt=["a"] * 256, cache_salt=large)
    assert (413, "documents", "message_too_large") == refusal(RERANK, query=large, documents=["a"] * 256)
    assert (413, "text_2", "message_too_large") == refusal(SCORE, text_1=large, text_2=["a"] * 256)
    caller = Scripted(DONE)
    asyncio.run(Client(caller).post(COMPLETIONS, model="m", prompt="a", cache_salt="x" * (batch.MAX_SHARED_BYTES + 1)))
    assert 1 == len(caller.asked)


def test_what_inputs_share_may_be_its_bound():
    """Together, to the byte."""
    half = batch.MAX_SHARED_BYTES // 2
    shared = generation_pb2.GenerateRequest(text="x" * (half - 5))
    assert half == shared.ByteSize()
    batch.check_shared(shared, 2, "prompt")
    with pytest.raises(InvalidRequest, match="2 inputs share"):
        batch.check_shared(generation_pb2.GenerateRequest(text="x" * (half - 4)), 2, "prompt")


def test_a_judged_text_is_shared():
    """The query is in each call, and so is a `text_1` that is the only one."""
    card = model_pb2.GetModelResponse(model={"takes_pairs": True, "labels": ["l"]})
    judged = classification_pb2.ClassifyResponse(labels=[{"label": "l", "score": 0.5}])
    for path, body, expected in (
        (RERANK, {"query": "q", "documents": ["a", "b"]}, [("q", "a"), ("q", "b")]),
        (SCORE, {"text_1": "q", "text_2": ["a", "b"]}, [("q", "a"), ("q", "b")]),
        (SCORE, {"text_1": ["q", "r"], "text_2": ["a", "b"]}, [("q", "a"), ("r", "b")]),
    ):
        caller = Scripted(card, judged, judged)
        asyncio.run(Client(caller).post(path, model="m", **body))
        assert expected == [(each.text, each.text_pair) for _, each in caller.asked[1:]]
        assert {("m", "r1")} == {(each.model.name, each.request_id) for _, each in caller.asked[1:]}


class Counting(Scripted):
    """A ApiCaller that notes how many calls were open at once."""

    num_open = most_open = 0

    async def unary(self, method, request):
        """DONE, after the others have begun."""
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await asyncio.sleep(0)
        self.num_open -= 1
        return DONE

    async def stream(self, method, request):
        """The same as the only response."""
        done = await self.unary(method, request)
        yield generation_pb2.StreamGenerateResponse(final=done)


def test_so_many_prompts_run_at_once():
    """A batch of 256 leaves room for others, and fits into the places that constraints have. All are answered."""
    ask = {"model": "m", "prompt": ["a"] * 256, "regex": "a+"}
    caller = Counting()
    whole = asyncio.run(Client(caller).post(COMPLETIONS, **ask))
    assert (256, 32) == (len(whole["choices"]), caller.most_open)
    caller = Counting()
    events = asyncio.run(Client(caller).post(COMPLETIONS, **ask, stream=True))
    ends = [each for each in events[:-1] if each["choices"][0]["finish_reason"]]
    assert (256, True) == (len(ends), caller.most_open <= 32)


def test_a_small_queue_is_not_flooded_by_a_batch():
    """An eighth of the queue's places is for one batch, and one at least."""
    assert [1, 1, 2, 32, 32] == [most_together(each) for each in (1, 8, 16, 256, 1000)]


def test_a_route_knows_the_queue():
    """By the server's setting: a batch takes its eighth."""
    route = next(each for each in openai_routes(ModelRegistry([]), 1 << 20, 16) if each.path == COMPLETIONS)
    body = msgspec.json.encode({"model": "m", "prompt": ["a"] * 9})
    caller = Counting()
    asyncio.run(route.answer(HttpRequest("POST", COMPLETIONS, "", [], "peer", None, None, {}, body), caller))
    assert 2 == caller.most_open


def test_texts_have_the_bound_of_grpc():
    """Only a route that takes pictures or recordings has a larger body. A chat without pictures is no such one."""
    bounds = {each.path: each.max_bytes for each in openai_routes(ModelRegistry([]), 16 << 20) if each.method == "POST"}
    files = {CHAT, "/v1/audio/transcriptions", "/v1/audio/translations"}
    assert files == {path for path, most in bounds.items() if most == 16 << 20}
    assert {MAX_TEXT_BYTES} == {most for path, most in bounds.items() if path not in files}
    assert len(bounds) == sum(1 + len(each.aliases) for each in ENDPOINTS if each.verb == "POST")
    large = [{"role": "user", "content": "x" * MAX_TEXT_BYTES}]
    assert (413, "messages", "message_too_large") == refusal(CHAT, messages=large)
    assert (413, "messages", "message_too_large") == refusal(CHAT, common_pb2.TASK_TRANSLATE, messages=large)


def scored(num_tokens, num_top=20, text="", num_answers=1):
    """An answer with log-probabilities."""
    ids = list(range(num_tokens))
    top = {"token_ids": list(range(num_top)), "tokens": ["a"] * num_top, "log_probs": [-1.0] * num_top}
    output = {
        "text": text, "finish_reason": 1, "token_ids": ids, "tokens": ["a"] * num_tokens,
        "token_log_probs": [-1.0] * num_tokens, "top_tokens": [top] * num_tokens,
    }  # fmt: skip
    return {"completion": output | {"others": [output] * (num_answers - 1)}}


def threads(monkeypatch, *names):
    """The threads in which these functions of text_answers.py run from now on."""
    seen = []
    for name in names:
        made = getattr(text_answers, name)
        monkeypatch.setattr(
            text_answers, name, lambda *given, made=made: seen.append(threading.current_thread()) or made(*given)
        )
    return seen


def test_a_large_answer_is_written_aside(monkeypatch):
    """Choice by choice, so that no other request waits for it, and with the same bytes. So are a stream's ends."""
    seen = threads(monkeypatch, "completion_log_probs", "chat_log_probs", "_about")
    done = generation_pb2.GenerateResponse(**scored(200))
    final = generation_pb2.StreamGenerateResponse(final=scored(200, text="t", num_answers=2))
    said = [{"role": "user", "content": "a"}]

    def talk(answers, path=COMPLETIONS, **body):
        seen.clear()
        answer = asyncio.run(Client(Scripted(*answers)).post(path, model="m", **body))
        return answer, {thread is threading.main_thread() for thread in seen}

    large = {"prompt": ["a", "b"], "logprobs": 20, "max_tokens": 200}
    aside_whole, where = talk([done] * 2, **large)
    assert {False} == where
    assert {False} == talk([final], prompt="a", logprobs=20, stream=True)[1]
    assert {False} == talk([done], CHAT, messages=said, logprobs=True, top_logprobs=20)[1]
    assert {True} == talk([generation_pb2.GenerateResponse(**scored(5, 1))], prompt="a", logprobs=1)[1]
    monkeypatch.setattr(aside, "SMALL_BYTES", 1 << 30)
    whole, where = talk([done] * 2, **large)
    assert {True} == where
    assert whole | {"created": 0} == aside_whole | {"created": 0}


def cut(num_tokens):
    """A text of so many tokens."""
    lists = {"token_ids": [1] * num_tokens, "tokens": ["a"] * num_tokens, "added": [False] * num_tokens}
    return tokenization_pb2.TokenizeResponse(starts=[0] * num_tokens, ends=[1] * num_tokens, **lists)


def echoing(*answers, **body):
    """The calls of an echo, the answer, and for each piece of it whether it was written in the main thread."""
    seen, caller = [], Scripted(*answers)

    def spell(_id, _begins):
        seen.append(threading.current_thread() is threading.main_thread())
        return b"a"

    asked = {"model": "m", "prompt": "a", "echo": True} | body
    answer = asyncio.run(Client(caller, spelling_of=lambda _: spell).send("POST", COMPLETIONS, asked))
    return [method for method, _ in caller.asked], answer, seen


def test_what_is_small_is_done_at_once():
    """Up to the bound and with it; a byte more is another thread's."""

    async def where(num_bytes, *bound):
        return await aside.aside(num_bytes, threading.get_ident, *bound)

    async def run():
        bound = aside.SMALL_BYTES
        return [await where(*given) for given in ((bound,), (bound + 1,), (7, 7), (8, 7), (bound + 1, bound + 1))]

    here = threading.get_ident()
    assert [True, False, True, False, True] == [each == here for each in asyncio.run(run())]


def test_a_large_prompt_is_put_before_its_answers_aside():
    """With all of its scores, for each answer. Those of a small one are written at once."""
    for num_tokens, num_top, is_main in ((400, 20, False), (4, 1, True)):
        given = scored(num_tokens - 1, num_top)["completion"]
        scores = {name: given[name] for name in ("token_ids", "tokens", "token_log_probs", "top_tokens")}
        done = generation_pb2.GenerateResponse(**scored(2, num_top, num_answers=2))
        answers = cut(num_tokens), score_pb2.ScoreResponse(**scores), done
        _, (_, _, answer), seen = echoing(*answers, logprobs=num_top, n=2, max_tokens=2)
        assert [num_tokens + 2] * 2 == [len(each["logprobs"]["top_logprobs"]) for each in answer["choices"]]
        assert {is_main} == set(seen)


def test_the_scores_of_an_echoed_prompt_are_bounded():
    """By its tokens, times the answers that it stands before, whether it is one prompt or several."""
    many = {"logprobs": 20, "max_tokens": 8}
    full = Overloaded("QUEUE_FULL", "full")
    for num_tokens, n, is_one in ((1552, 32, True), (24_958, 1, False)):
        for more in (0, 1):
            prompt = cut(num_tokens + more)
            before = () if is_one else (prompt, score_pb2.ScoreResponse(), DONE)
            asked, (status, _, answer), _ = echoing(
                *before, prompt, full, prompt="a" if is_one else ["a", "b"], n=n, **many
            )
            assert ((400, "logprobs") if more else (429, None)) == (status, answer["error"]["param"])
            assert ("Tokenize" if more else "Score") == asked[-1], "it is refused before it is scored"


def test_other_large_answers_are_written_aside(monkeypatch):
    """Tokens, and documents that were judged."""
    seen, name = [], "_whole"
    for module in (tokenize, rerank):
        made = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *given, made=made, **more: seen.append(threading.current_thread()) or made(*given, **more),
        )
    cut = tokenization_pb2.TokenizeResponse(token_ids=[70_000] * 100_000)
    asyncio.run(Client(Scripted(cut)).post("/tokenize", model="m", prompt="p"))
    card = model_pb2.GetModelResponse(model={"takes_pairs": True, "labels": ["l"]})
    judged = classification_pb2.ClassifyResponse(labels=[{"label": "l", "score": 0.5}])
    asyncio.run(Client(Scripted(card, judged)).post(RERANK, model="m", query="q", documents=[LARGE]))
    assert [False] * 2 == [thread is threading.main_thread() for thread in seen]


def test_the_scores_of_an_answer_are_bounded():
    """Of all prompts together, before one of them runs. A model that gives fewer tokens may be asked for more tops."""
    many = {"prompt": ["a"] * 256, "logprobs": 20}
    assert (400, "logprobs", "invalid_field") == refusal(**many)
    assert (400, "logprobs", "invalid_field") == refusal(**many, max_tokens=100, n=2, temperature=1)
    caller = Scripted(*[DONE] * 256)
    asyncio.run(Client(caller).post(COMPLETIONS, model="m", **many, max_tokens=100))
    assert 256 == len(caller.asked)


@pytest.mark.parametrize(
    ("path", "task", "body"),
    [
        (CHAT, common_pb2.TASK_GENERATE, {"messages": [{"role": "user", "content": LARGE}]}),
        (COMPLETIONS, common_pb2.TASK_GENERATE, {"prompt": LARGE}),
        (EMBEDDINGS, common_pb2.TASK_UNSPECIFIED, {"input": LARGE}),
        (RERANK, common_pb2.TASK_UNSPECIFIED, {"query": LARGE, "documents": ["a"]}),
        (SCORE, common_pb2.TASK_UNSPECIFIED, {"text_1": LARGE, "text_2": "a"}),
        ("/tokenize", common_pb2.TASK_UNSPECIFIED, {"prompt": LARGE}),
        ("/detokenize", common_pb2.TASK_UNSPECIFIED, {"tokens": [12345] * 30_000}),
    ],
)
def test_a_large_body_is_read_aside(monkeypatch, path, task, body):
    """No other request waits until its JSON is read. A small one is read at once."""
    seen, read = [], RequestFields.read
    monkeypatch.setattr(
        RequestFields, "read", lambda fields, data: seen.append(threading.current_thread()) or read(fields, data)
    )
    for small in (aside.SMALL_BYTES, 1 << 30):
        monkeypatch.setattr(aside, "SMALL_BYTES", small)
        answered = Client(Scripted(Overloaded("QUEUE_FULL", "full")), task).send("POST", path, {"model": "m"} | body)
        assert 429 == asyncio.run(answered)[0]
    assert [False, True] == [thread is threading.main_thread() for thread in seen]


def test_what_a_large_body_becomes_is_made_aside(monkeypatch):
    """A picture, prompts, inputs and chats."""
    seen = []
    for module, name in ((chat, "base64_bytes"), (chat, "_check_tools"), (completions, "inputs_of"),
                         (completions, "_own"), (embeddings, "inputs_of")):  # fmt: skip
        made = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, made=made: seen.append(threading.current_thread()) or made(*given)
        )
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (1 << 20)}}
    for path, task, body in (
        (CHAT, common_pb2.TASK_CAPTION, {"messages": [{"role": "user", "content": [picture]}]}),
        (COMPLETIONS, common_pb2.TASK_GENERATE, {"prompt": ["a", LARGE]}),
        (EMBEDDINGS, common_pb2.TASK_UNSPECIFIED, {"input": ["a", LARGE]}),
        ("/tokenize", common_pb2.TASK_UNSPECIFIED, {"messages": [{"role": "user", "content": LARGE}]}),
    ):
        caller = Scripted(*[Overloaded("QUEUE_FULL", "full")] * 2)
        asyncio.run(Client(caller, task).send("POST", path, {"model": "m"} | body))
        assert caller.asked
    assert [False] * 6 == [thread is threading.main_thread() for thread in seen]


def test_lists_are_counted_before_they_are_walked():
    """Messages and texts too many are refused by their number, whatever they are."""
    many = [{"role": "user", "content": "a"}] * 1025
    assert (400, "messages", "invalid_field") == refusal(CHAT, messages=many)
    assert (400, "messages", "invalid_field") == refusal("/tokenize", messages=many)
    assert (400, "text_2", "input_too_long") == refusal(SCORE, text_1="a", text_2=[""] * 257)
    assert (400, "documents", "input_too_long") == refusal(RERANK, query="a", documents=[""] * 257)


def test_pictures_too_many_are_not_read(monkeypatch):
    """Nor is one that the model does not take."""
    monkeypatch.setattr(chat, "_image", None)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for task, count in ((common_pb2.TASK_CAPTION, 2), (common_pb2.TASK_TRANSLATE, 1)):
        messages = [{"role": "user", "content": [picture] * count}]
        assert (400, "messages[0].content", "wrong_input_kind") == refusal(CHAT, task, messages=messages)
    messages = [{"role": "user", "content": [picture] * 33}] * 2
    assert (400, "messages", "invalid_field") == refusal(CHAT, common_pb2.TASK_GENERATE, messages=messages)


def test_base64_is_read_in_pieces(monkeypatch):
    """With the bytes that it has as a whole. It does not end at the seam of two pieces."""
    monkeypatch.setattr(chat, "_PIECE", 8)
    for size in range(40):
        data = bytes(range(size))
        assert data == chat.base64_bytes(base64.b64encode(data).decode())
    for wrong in ("AAAAAAA=AAAA", "AAAA====AAAA", "AAA", "AAAAAAAAA", "AAAAAA==AAAAAAAA", "\xe9AAA"):
        with pytest.raises(ValueError, match=r"padding|data|string|middle"):
            chat.base64_bytes(wrong)


@pytest.mark.parametrize("name", [row.name for row in (*SAMPLING, *PENALTIES)])
def test_a_number_of_any_length_is_refused_by_name(name):
    """Of 401 digits, of either sign, and one that is a float. Nothing of it is a fault of ours."""
    for digits in ("1" + "0" * 400, "-1" + "0" * 400, "1e400", "1" + "0" * 5000):
        body = f'{{"model": "m", "prompt": "p", "{name}": {digits}}}'.encode()
        status, _, answer = asyncio.run(Client(Scripted()).send("POST", COMPLETIONS, body))
        assert (400, name) == (status, answer["error"]["param"])
        assert len(answer["error"]["message"]) < 200


def test_greedy_decoding_has_the_ranges_of_draws():
    """A temperature of 0 gives other numbers of sampling no effect, and does not make wrong ones right."""
    for wrong in ({"top_p": 7}, {"top_k": -5}, {"min_p": 2}):
        ((name, _),) = wrong.items()
        assert (400, name, "invalid_field") == refusal(prompt="p", temperature=0, **wrong)
        assert (400, name, "invalid_field") == refusal(prompt="p", temperature=0, num_beams=2, **wrong)


@pytest.mark.parametrize("is_on", [True, False])
def test_no_garbage_is_searched_for_meanwhile(is_on):
    """A search through all that a server has would hold up everybody. Afterwards it is as before."""
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        assert not asyncio.run(aside.aside(1 << 20, gc.isenabled))
        assert is_on == gc.isenabled() == asyncio.run(aside.aside(1, gc.isenabled))
        with pytest.raises(ZeroDivisionError):
            asyncio.run(aside.aside(1 << 20, lambda: 1 / 0))
        assert is_on == gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()


def test_biases_are_counted_before_they_are_read():
    """Each of 260,000 would be an object of a dict. What is no object of numbers is refused by its name."""
    many = msgspec.json.encode({"model": "m", "prompt": "p", "logit_bias": {"5": 1}})
    assert isinstance(completions.FIELDS.read(many).logit_bias, msgspec.Raw)
    for wrong in ([1], {"5": "a"}, {"5": [1]}, "a", 1, {"5": None}):
        assert (400, "logit_bias", "invalid_field") == refusal(prompt="p", logit_bias=wrong)


@pytest.mark.parametrize(
    "field",
    [
        b'"user": "\xff"',
        b'"logit_bias": {"\xff": 1}',
        b'"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": "\xff"}}}',
    ],
)
def test_a_body_is_utf8_everywhere(field):
    """Also where its JSON is not read, or not yet."""
    body = b'{"model": "m", "prompt": "p", %s}' % field
    status, _, answer = asyncio.run(Client(Scripted()).send("POST", COMPLETIONS, body))
    assert (400, "bad_json") == (status, answer["error"]["code"])


def test_nothing_is_made_of_what_is_ignored():
    """However much it is. It is JSON all the same."""
    read = completions.FIELDS.read
    many = b'{"model": "m", "prompt": "p", "user": [%s0]}' % (b"[]," * 50_000)
    assert isinstance(read(many).user, msgspec.Raw)
    for wrong in (b"[}", b"[" * 100_000 + b"]" * 100_000, b'{"a" 1}'):
        with pytest.raises(InvalidRequest, match="no JSON"):
            read(b'{"model": "m", "prompt": "p", "user": %s}' % wrong)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_full_writer_refuses_by_the_head(path):
    """Before the body has come, where no other model can be meant; among several, if `weft-model` names it."""

    async def scenario(names, *headers):
        entries = [entry_of(name, full=name == "full") for name in names]
        routes = openai_routes(ModelRegistry(entries), 1 << 20)
        async with served(entries=entries, routes=routes) as server:
            return (await ask(server, head(path, "content-length: 14", *headers)))[0]

    assert 429 == asyncio.run(scenario(["full"]))
    assert 429 == asyncio.run(scenario(["full", "other"], "weft-model: full"))
