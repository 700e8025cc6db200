"""Laws of tokens: those that requests count and answers have, bounded apart, and errors that name the field."""

import asyncio
import math
import shutil
import threading
import time

import pytest
from google.protobuf import json_format

from loaded import Loaded, ask, detokenize, golden_request, score, tokenize
from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2, model_pb2, tokenization_pb2
from weft_server.errors import DeadlineExpired, Draining, InvalidRequest, Overloaded
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.preprocessing.inputs import MAX_SPLIT_CHARS
from weft_server.preprocessing.tokenizer_side import MAX_TOKENS
from weft_server.rpc.services import behaviours
from weft_server.sequence import Standing

INPUT, OUTPUT = tokenization_pb2.SIDE_INPUT, tokenization_pb2.SIDE_OUTPUT
READERS = ["tiny-translate", "tiny-generate", "tiny-text", "tiny-tags", "tiny-t5", "tiny-bert"]
WRITERS = ["tiny-translate", "tiny-generate", "tiny-caption"]
CHAT = generation_pb2.Messages(turns=[{"role": "user", "content": "the cat"}, {"role": "user", "content": "¿é 日?"}])


def run(directory, body, **settings):
    """Run a coroutine function over a model that is loaded from a directory."""

    async def over():
        async with Loaded(directory, **settings) as model:
            return await body(model)

    return asyncio.run(over())


async def held_by(model, free, tenant=""):
    """Hold the thread that makes tokens, or wait for it, until it is free."""
    return await model.tokenizing.do(lambda _: free.wait(), math.inf, Standing(tenant=tenant))


def usage_of(answer):
    """What an answer of any task counts."""
    return answer.completion.usage if hasattr(answer, "completion") else answer.usage


def what(answer):
    """What an answer of any task says."""
    for name in ("completion", "labels", "tokens"):
        if hasattr(answer, name):
            return answer.completion.token_ids if name == "completion" else getattr(answer, name)
    raise AssertionError(answer)


@pytest.mark.parametrize("name", READERS)
def test_tokens_are_those_that_a_request_counts(tiny_repository, name):
    """As many, with or without the list, and a request with their ids is answered as one with the text."""

    async def laws(model):
        source = golden_request(model)
        cut = await tokenize(model, **source)
        counted = await tokenize(model, **source, count_only=True)
        of_text = await ask(model, **source)
        of_ids = await ask(model, token_ids=common_pb2.TokenIds(ids=cut.token_ids))

        assert usage_of(of_text).input_tokens == cut.num_tokens == counted.num_tokens > 0
        lists = (cut.token_ids, cut.tokens, cut.starts, cut.ends, cut.added)
        assert {cut.num_tokens} == set(map(len, lists))
        assert not any((counted.token_ids, counted.tokens, counted.starts, counted.ends, counted.added))
        if name != "tiny-tags":  # of ids it knows no places
            assert what(of_text) == what(of_ids)
        assert model.source_tokenizer.added(list(cut.token_ids)) == list(cut.added)
        assert model.source_tokenizer.pieces(cut.token_ids) == list(cut.tokens)
        assert (model.name, 1) == (cut.model.name, cut.model.version)
        assert cut.request_id

    run(tiny_repository / name / "1", laws)


def test_places_are_those_of_a_tagger(tiny_repository):
    """Each token stands where a tagger finds it, in code points. One that is added stands nowhere."""
    text = "the  big 😀 dog é"

    async def laws(model):
        cut = await tokenize(model, text=text)
        tagged = await ask(model, text=text)
        rows = list(zip(cut.tokens, cut.starts, cut.ends, cut.added, strict=True))
        assert [(each.token, each.start, each.end) for each in tagged.tokens] == [row[:3] for row in rows if not row[3]]
        assert all(0 == start == end for _, start, end, added in rows if added)

    run(tiny_repository / "tiny-tags" / "1", laws)


@pytest.mark.parametrize("name", WRITERS)
def test_an_answer_s_ids_say_its_text(tiny_repository, name):
    """Its ids give its text and its pieces. Its text gives the ids that are scored, the end token behind them."""

    async def laws(model):
        source = golden_request(model)
        done = (await ask(model, **source, return_scores=True)).completion
        said = await detokenize(model, token_ids=done.token_ids)
        assert (done.text, list(done.tokens)) == (said.text, list(said.tokens))

        text = done.text or "el perro"
        cut = await tokenize(model, text=text, side=OUTPUT)
        scored = await score(model, **source, target_text=text)
        assert (scored.usage.output_tokens, scored.token_ids) == (cut.num_tokens, cut.token_ids)
        assert cut.num_tokens == (await tokenize(model, text=text, side=OUTPUT, count_only=True)).num_tokens
        assert [model.manifest.text.end_ids[0]] == [
            id_ for id_, added in zip(cut.token_ids, cut.added, strict=True) if added
        ]

    run(tiny_repository / name / "1", laws)


def test_a_text_comes_back(tiny_repository):
    """Of bytes all comes back, and each part of the text is one token's or of tokens that share a character."""
    text = "def f(x):\n\treturn 'é 日本 👩‍👩‍👧'  \x00"

    async def laws(model):
        cut = await tokenize(model, text=text)
        assert text == (await detokenize(model, token_ids=cut.token_ids)).text
        assert text == (await detokenize(model, token_ids=cut.token_ids, side=INPUT)).text
        assert len(text) == max(cut.ends)
        half = (await detokenize(model, token_ids=model.source_tokenizer.encode("日")[:1])).text
        assert "\ufffd" == half

    run(tiny_repository / "tiny-generate" / "1", laws)


def test_a_text_may_be_longer_than_a_request(tiny_repository):
    """It is counted where a request is refused, and need not begin with a prefix of the model."""

    async def laws(model):
        text = "the dog " * 1000
        cut = await tokenize(model, text=text)
        assert 2000 == sum(not added for added in cut.added)
        with pytest.raises(InvalidRequest):
            await ask(model, text=text)

    run(tiny_repository / "tiny-t5" / "1", laws)


def test_messages_are_cut_as_their_prompt(tiny_repository):
    """As many tokens as the chat's answer counts, in the prompt that their template makes."""

    async def laws(model):
        cut = await tokenize(model, messages=CHAT)
        counted = await tokenize(model, messages=CHAT, count_only=True)
        answered = await ask(model, messages=CHAT, decoding={"max_new_tokens": 1})
        assert answered.completion.usage.input_tokens == cut.num_tokens == counted.num_tokens
        assert cut.prompt == counted.prompt
        assert "¿é 日?" in cut.prompt
        # Tokens of one character share its place. White space around a word may be in none.
        places = dict.fromkeys(zip(cut.starts, cut.ends, strict=True))
        assert "".join(cut.prompt.split()) == "".join("".join(cut.prompt[start:end].split()) for start, end in places)

    run(tiny_repository / "tiny-generate" / "1", laws)


def test_tokens_of_languages_are_added(tiny_repository, tmp_path):
    """What the model is given for its languages stands around the source, and is counted."""
    directory = tmp_path / "m" / "1"
    shutil.copytree(tiny_repository / "tiny-translate" / "1", directory)
    manifest = json_format.Parse((directory / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    del manifest.text.source_languages[:], manifest.text.target_languages[:]
    manifest.text.source_languages.extend(["en", "pt"])
    manifest.text.target_languages.extend(["es"])
    manifest.text.languages.add(tag="pt", source_before=[9, 10], source_after=[11])
    manifest.text.languages.add(tag="es", target_before=[12])
    (directory / "bundle.json").write_text(json_format.MessageToJson(manifest))

    async def laws(model):
        plain = model.source_tokenizer.encode("the big dog")
        cut = await tokenize(model, text="the big dog", source_language="pt")
        answered = await ask(model, text="the big dog", source_language="pt")
        assert [12, 9, 10, *plain, 11] == list(cut.token_ids)
        assert [True, True, True, False, False, False, True, True] == list(cut.added)
        assert answered.completion.usage.input_tokens == cut.num_tokens
        count = await tokenize(model, text="the big dog", source_language="en", count_only=True)
        assert 1 + len(plain) == count.num_tokens
        for request in ({}, {"source_language": "pt-BR"}):
            with pytest.raises(InvalidRequest) as refused:
                await tokenize(model, text="the", **request)
            assert "source_language" == refused.value.field

    run(directory, laws)


REFUSED = [
    ("tiny-translate", {"text": ""}, "text", "EMPTY_INPUT"),
    ("tiny-translate", {}, "input", "EMPTY_INPUT"),
    ("tiny-translate", {"text": "a" * (MAX_SPLIT_CHARS + 1)}, "text", "INPUT_TOO_LONG"),
    ("tiny-translate", {"text": "a" * (MAX_SPLIT_CHARS + 1), "count_only": True}, "text", "INPUT_TOO_LONG"),
    ("tiny-generate", {"text": "日" * (MAX_TOKENS // 3 + 1)}, "text", "INPUT_TOO_LONG"),
    ("tiny-translate", {"text": "a", "side": 7}, "side", "INVALID_FIELD"),
    ("tiny-translate", {"text": "a", "source_language": "fr"}, "source_language", "INVALID_FIELD"),
    ("tiny-translate", {"text": "a", "side": OUTPUT, "source_language": "en"}, "source_language", "INVALID_FIELD"),
    ("tiny-text", {"text": "a", "target_language": "en"}, "target_language", "INVALID_FIELD"),
    ("tiny-text", {"text": "a", "side": OUTPUT}, "side", "WRONG_INPUT_KIND"),
    ("tiny-text", {"text": "a", "request_id": "a\nb"}, "request_id", "INVALID_FIELD"),
    ("tiny-caption", {"text": "a", "side": INPUT}, "side", "WRONG_INPUT_KIND"),
    ("tiny-speech", {"text": "a", "side": INPUT}, "side", "WRONG_INPUT_KIND"),
    ("tiny-image", {"text": "a"}, "model.name", "WRONG_INPUT_KIND"),
    ("tiny-translate", {"messages": CHAT}, "messages", "WRONG_INPUT_KIND"),
    ("tiny-generate", {"messages": CHAT, "side": OUTPUT}, "messages", "WRONG_INPUT_KIND"),
    ("tiny-generate", {}, "input", "EMPTY_INPUT"),
    ("tiny-generate", {"messages": generation_pb2.Messages()}, "messages.turns", "EMPTY_INPUT"),
    ("tiny-generate", {"token_ids": []}, "token_ids", "EMPTY_INPUT"),
    ("tiny-generate", {"token_ids": [5] * (MAX_TOKENS + 1)}, "token_ids", "INPUT_TOO_LONG"),
    ("tiny-generate", {"token_ids": [5, 4_000_000_000]}, "token_ids[1]", "TOKEN_OUT_OF_RANGE"),
    ("tiny-text", {"token_ids": [5], "side": OUTPUT}, "side", "WRONG_INPUT_KIND"),
    ("tiny-image", {"token_ids": [5]}, "model.name", "WRONG_INPUT_KIND"),
]


@pytest.mark.parametrize("name", sorted({row[0] for row in REFUSED}))
def test_what_cannot_be_cut_or_joined_is_refused_by_its_field(tiny_repository, name):
    """One typed error for each mistake, and the next request is answered."""

    async def laws(model):
        for _, request, field, reason in (row for row in REFUSED if row[0] == name):
            with pytest.raises(InvalidRequest) as refused:
                await (detokenize if "token_ids" in request else tokenize)(model, **request)
            assert (request, field, reason) == (request, refused.value.field, refused.value.reason)
        if name != "tiny-image":
            assert (await tokenize(model, text="a")).num_tokens

    run(tiny_repository / name / "1", laws)


def test_a_model_with_one_text_has_one_side(tiny_repository):
    """It is the default of both requests: a captioner's output, and a classifier's input."""

    async def captions(model):
        assert (await tokenize(model, text="el perro")).token_ids == (
            await tokenize(model, text="el perro", side=OUTPUT)
        ).token_ids

    async def labels(model):
        ids = (await tokenize(model, text="the dog")).token_ids
        assert "the dog" == (await detokenize(model, token_ids=ids)).text

    run(tiny_repository / "tiny-caption" / "1", captions)
    run(tiny_repository / "tiny-text" / "1", labels)


def test_a_flood_of_tokens_holds_up_no_answer(tiny_repository):
    """While its thread is held, answers come. As many wait as may, none of a full room's more, and all are answered."""

    async def laws(model):
        free = threading.Event()
        held = [asyncio.create_task(held_by(model, free)) for _ in range(2)]
        waiting = [asyncio.create_task(tokenize(model, text="the dog")) for _ in range(2)]
        await asyncio.sleep(0)
        for ask_more in (tokenize(model, text="the"), detokenize(model, token_ids=[5])):
            with pytest.raises(Overloaded) as refused:
                await ask_more
            assert ("QUEUE_FULL", 1.0) == (refused.value.reason, refused.value.retry_after_s)
        assert (await ask(model, **golden_request(model))).completion.token_ids
        free.set()
        await asyncio.gather(*held)
        assert 2 == len({answer.request_id for answer in await asyncio.gather(*waiting)})
        assert (await tokenize(model, text="the dog")).num_tokens

    run(tiny_repository / "tiny-translate" / "1", laws, max_queued_requests=16)


def test_no_tenant_takes_all_places(tiny_repository):
    """One that floods is refused while others find a place."""

    async def laws(model):
        free, other = threading.Event(), RequestContext("Tokenize", tenant="other")
        held = [asyncio.create_task(held_by(model, free, "flood")) for _ in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await tokenize(model, RequestContext("Tokenize", tenant="flood"), text="the dog")
        assert "TENANT_QUEUE_FULL" == refused.value.reason
        answer = asyncio.create_task(tokenize(model, other, text="the dog"))
        await asyncio.sleep(0)
        free.set()
        assert (await answer).num_tokens
        await asyncio.gather(*held)

    run(tiny_repository / "tiny-translate" / "1", laws, max_queued_requests=40)


def test_what_is_late_or_ended_says_so(tiny_repository):
    """A call whose deadline has passed is not begun, and one that waits when all is ended hears it."""

    async def laws(model):
        with pytest.raises(DeadlineExpired):
            await tokenize(model, RequestContext("Tokenize", deadline=time.monotonic() - 1), text="the dog")
        free = threading.Event()
        held = asyncio.create_task(held_by(model, free))
        waiting = asyncio.create_task(tokenize(model, text="the dog"))
        await asyncio.sleep(0)
        model.cancel_all(Draining)
        with pytest.raises(Draining):
            await waiting
        free.set()
        await asyncio.gather(held, return_exceptions=True)

    run(tiny_repository / "tiny-translate" / "1", laws)


def test_a_model_that_sleeps_is_woken_for_what_it_can_do(tiny_repository):
    """Who asks for tokens wakes it. A side that it has not is refused without that."""

    async def laws(model):
        entry = RegistryEntry(model.name, 1, model.bundle.directory, model_pb2.MODEL_STATE_SLEEPING)
        entry.task = model.manifest.task
        woken = []

        async def wake(_):
            woken.append(True)
            entry.state, entry.model = model_pb2.MODEL_STATE_READY, model

        entry.wake = wake
        answer = behaviours(ModelRegistry([entry]), config=None)["Tokenize"]
        request = tokenization_pb2.TokenizeRequest(model={"name": model.name}, text="the dog", side=OUTPUT)
        REQUEST_CONTEXT.set(RequestContext("Tokenize"))
        with pytest.raises(InvalidRequest):
            await answer(request, None)
        assert not woken
        request.side = INPUT
        assert (await answer(request, None)).num_tokens
        assert [True] == woken

    run(tiny_repository / "tiny-text" / "1", laws)
