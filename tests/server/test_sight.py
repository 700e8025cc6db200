"""Pictures in a conversation: encoded once, kept apart by digest and tenant, and refused by name at the door."""

import asyncio
import base64
import threading
import time

import numpy as np
import pytest
from tiny_sight import IMAGE_ID, MAX_TOKENS, NUM_PLACES, VOCABULARY

from loaded import ask, tokenize
from openai_calls import serving
from pictured_chats import DECODING, PICTURES, answer, chat, run, turn
from waiting import until
from weft_proto.v1 import common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.models.picture_features import PictureFeatures
from weft_server.models.seeing import MAX_SEEING
from weft_server.preprocessing.pictured_prompt import MAX_PICTURES, PromptPicture, pictured
from weft_server.requests.pictured_ids import PicturedIds, SeenPicture
from weft_server.telemetry.metrics import Metrics

CHAT = "/v1/chat/completions"


def lookups(model):
    """How often pictures were looked up, and found: hits and misses."""
    counters = model.metrics.counters
    return tuple(int(counters["picture_cache_lookups_total", result].value) for result in ("hit", "miss"))


def test_a_picture_takes_its_places_and_changes_the_answer(tiny_repository):
    """Each of two pictures counts NUM_PLACES tokens, and three pictures have three answers."""

    async def use(model):
        alone = await answer(model, chat(("what is it", "")))
        seen = [await answer(model, chat(("what is it", each))) for each in PICTURES]
        both = await answer(model, chat(("what is it", PICTURES[0], PICTURES[1])))
        return alone, seen, both

    (_, length), seen, (_, both) = run(tiny_repository, "tiny-llava", use)
    assert {length + NUM_PLACES} == {count for _, count in seen}
    assert length + 2 * NUM_PLACES == both
    assert 3 == len({tuple(tokens) for tokens, _ in seen})


@pytest.mark.parametrize("prefix_cache_mb", [0, 8])
def test_pictures_of_one_prompt_are_kept_apart(prefix_cache_mb, tiny_repository):
    """Whatever was read before, with the prefix cache or without: an answer is to its own picture."""
    asked = [chat(("look", each, " and tell what is there, at length")) for each in PICTURES]

    async def use(model):
        first = [await answer(model, each) for each in asked]
        again = [await answer(model, each) for each in [*asked, *asked[::-1]]]
        return first, again, model.metrics.prefix_cache_tokens.value

    first, again, num_cached = run(tiny_repository, "tiny-llava", use, prefix_cache_mb=prefix_cache_mb)
    assert [*first, *first[::-1]] == again
    assert 3 == len({tuple(tokens) for tokens, _ in first})
    assert bool(prefix_cache_mb) == (num_cached > 0)


def test_a_second_question_costs_no_encoder_and_another_tenant_pays_for_itself(tiny_repository):
    """What was seen is found by its digest, of one tenant alone. Two of one picture in a prompt are one."""

    async def use(model):
        found = []
        asks = [("what", PICTURES[0]), ("who", PICTURES[0]), ("both", PICTURES[0], PICTURES[0])]
        for tenant in ("", "a"):
            for each in asks:
                await answer(model, chat(each), tenant)
                found.append(lookups(model))
        return found, model.metrics.picture_cache_bytes

    found, num_bytes = run(tiny_repository, "tiny-llava", use)
    assert [(0, 1), (1, 1), (2, 1), (2, 2), (3, 2), (4, 2)] == found
    assert 2 * (NUM_PLACES * 32 * 4 + 400) == num_bytes


def test_what_is_kept_is_bounded_and_the_oldest_leaves():
    """Room for two: the third takes that of the one that was used longest ago."""
    metrics = Metrics().for_model("m", 1, "t")
    features = np.zeros((4, 8), np.float32)
    kept = PictureFeatures(metrics, 2 * (features.nbytes + 400))
    for digest in (b"a", b"b"):
        kept.keep("", digest, features)
    kept.find("", b"a")
    kept.keep("", b"c", features)
    assert [True, False, True] == [kept.find("", each) is not None for each in (b"a", b"b", b"c")]
    assert kept.find("other", b"a") is None
    assert 2 * (features.nbytes + 400) == metrics.picture_cache_bytes
    assert 1 == metrics.counters["picture_cache_evictions_total", ""].value


MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom"
REFUSED = {
    "a video": (chat(("a", MP4)), "messages.turns[0].parts[1].image.data", "BAD_IMAGE"),
    "no picture": (chat(("a", b"no picture")), "messages.turns[0].parts[1].image.data", "BAD_IMAGE"),
    "an empty picture": (chat(("a", b"")), "messages.turns[0].parts[1].image.data", "EMPTY_INPUT"),
    "both": (
        chat(generation_pb2.Message(role="user", content="a", parts=[{"text": "b"}])),
        "messages.turns[0].parts",
        "INVALID_FIELD",
    ),
    "an empty part": (
        chat(generation_pb2.Message(role="user", parts=[{}])),
        "messages.turns[0].parts[0].kind",
        "EMPTY_INPUT",
    ),
    "a spelled token": (
        chat(("one", PICTURES[0]), ("an <image> here",)),
        "messages.turns[1].parts[0].text",
        "INVALID_FIELD",
    ),
    "a spelled token alone": (
        chat(generation_pb2.Message(role="user", content="an <image> here")),
        "messages.turns[0].content",
        "INVALID_FIELD",
    ),
    "too long": (chat(("a", *[PICTURES[0]] * 6)), "messages", "INPUT_TOO_LONG"),
    "too many": (chat(("a", *[PICTURES[0]] * (MAX_PICTURES + 1))), "messages.turns", "INVALID_FIELD"),
    "too many parts": (chat(tuple("a" * 129)), "messages.turns[0].parts", "INVALID_FIELD"),
    "a role that spells one": (chat(turn("a", role="<image>")), "messages", "CHAT_REFUSED"),
}


def test_what_no_model_can_see_is_refused_by_name_and_leaves_nothing(tiny_repository):
    """Each fault names its field, and the model answers as before."""

    async def use(model):
        expected, found = await answer(model, chat(("hello",))), {}
        for name, (messages, _, _) in REFUSED.items():
            with pytest.raises(InvalidRequest) as error:
                await answer(model, messages)
            assert str(error.value).startswith(error.value.field)
            found[name] = (error.value.field, error.value.reason)
        assert expected == await answer(model, chat(("hello",)))
        return found

    expected = {name: (field, reason) for name, (_, field, reason) in REFUSED.items()}
    assert expected == run(tiny_repository, "tiny-llava", use)


def test_a_picture_s_token_without_a_picture_is_refused(tiny_repository):
    """In a text and among ids, as in messages: a model would answer about nothing."""
    given = {
        "text": {"text": "an <image> here"},
        "token_ids.ids": {"token_ids": common_pb2.TokenIds(ids=[1, IMAGE_ID, 2])},
    }

    async def use(model):
        for field, request in given.items():
            with pytest.raises(InvalidRequest) as error:
                await ask(model, decoding=DECODING, **request)
            assert field == error.value.field

    run(tiny_repository, "tiny-llava", use)


def test_what_is_refused_costs_no_encoder(tiny_repository):
    """A wrong decoding, a broken picture behind good ones, no room in the queue: told before a picture is seen."""

    async def use(model):
        session = model.sight.lanes[0].sessions["pixel_values"]
        session.run = lambda _: pytest.fail("a picture was encoded")
        refusals = []
        wrong = common_pb2.Decoding(max_new_tokens=12, min_new_tokens=13)
        with pytest.raises(InvalidRequest) as error:
            await ask(model, messages=chat(("what", PICTURES[0])), decoding=wrong)
        refusals.append(error.value.field)
        with pytest.raises(InvalidRequest) as error:
            await answer(model, chat(("what", *PICTURES[:2], b"broken")))
        refusals.append(error.value.field)

        def full(_):
            raise Overloaded("TOKEN_BUDGET", "full")

        model.engine.check_tokens = full
        with pytest.raises(Overloaded):
            await answer(model, chat(("what", PICTURES[0])))
        return refusals

    expected = ["decoding.min_new_tokens", "messages.turns[0].parts[3].image.data"]
    assert expected == run(tiny_repository, "tiny-llava", use)


def test_few_requests_hold_what_they_see_at_once(tiny_repository):
    """While MAX_SEEING have pictures on the way, others hold neither pixels nor features, and all are answered."""

    async def use(model):
        session, goes_on = model.sight.lanes[0].sessions["pixel_values"], threading.Event()
        encode = session.run
        session.run = lambda feeds: encode(feeds) if goes_on.wait() else None
        asked = [
            asyncio.create_task(answer(model, chat(("a", PICTURES[0])), f"t{each}")) for each in range(3 * MAX_SEEING)
        ]
        try:
            await until(lambda: on_the_way(model) >= MAX_SEEING)
            # Time for more to come, if they may.
            await asyncio.sleep(0.2)
            held = on_the_way(model)
        finally:
            goes_on.set()
        return held, len({tuple(tokens) for tokens, _ in await asyncio.gather(*asked)})

    assert (MAX_SEEING, 1) == run(tiny_repository, "tiny-llava", use)


def on_the_way(model):
    """How many pictures wait for their encoder, or are in it."""
    stats = model.sight.stats()
    return stats.queued + stats.running


def test_a_model_of_texts_joins_texts_and_refuses_pictures(tiny_repository):
    """Texts in parts are one text, a line each; a picture is refused by its place."""

    async def use(model):
        one = await answer(model, chat(generation_pb2.Message(role="user", content="the\ncat")))
        several = await answer(model, chat(("the", "cat")))
        with pytest.raises(InvalidRequest) as error:
            await answer(model, chat(("the", PICTURES[0])))
        return one, several, (error.value.field, error.value.reason)

    one, several, refused = run(tiny_repository, "tiny-generate", use)
    assert one == several
    assert ("messages.turns[0].parts[1].image", "WRONG_INPUT_KIND") == refused


def test_tokens_of_messages_begin_as_a_processor_lets_them_begin(tiny_repository):
    """The template writes no <s>, so the tokenizer does; tokens of a picture are not shown."""

    async def use(model):
        cut = await tokenize(model, messages=chat(("hello",)))
        _, length = await answer(model, chat(("hello",)))
        with pytest.raises(InvalidRequest) as error:
            await tokenize(model, messages=chat(("hello", PICTURES[0])))
        return list(cut.tokens), length, (error.value.field, error.value.reason)

    tokens, length, refused = run(tiny_repository, "tiny-llava", use)
    assert ("<s>", length) == (tokens[0], len(tokens))
    assert ("messages.turns[0].parts", "NOT_SUPPORTED") == refused


def test_a_chat_by_http_is_that_of_generate(tiny_repository):
    """Data URIs are pictures, whole and as a stream, and what is wrong with one has its `param`."""

    def said(*parts):
        shown = [
            {"type": "text", "text": each}
            if isinstance(each, str)
            else {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(each).decode()}}
            for each in parts
        ]
        return {"model": "tiny-llava", "messages": [{"role": "user", "content": shown}], "max_tokens": 12}

    async def talk(client):
        request = generation_pb2.GenerateRequest(messages=chat(("what", PICTURES[0])), decoding=DECODING)
        typed = (await client.caller.unary(METHODS["Generate"], request)).completion
        whole = await client.post(CHAT, **said("what", PICTURES[0]))
        events = await client.post(CHAT, **said("what", PICTURES[0]), stream=True)
        texts = [each["choices"][0]["delta"].get("content", "") for each in events if isinstance(each, dict)]
        assert (typed.text, typed.usage.input_tokens) == ("".join(texts), whole["usage"]["prompt_tokens"])
        assert typed.text == whole["choices"][0]["message"]["content"]
        return [await client.refusal(CHAT, **said("what", wrong)) for wrong in (b"no picture", "<image>")]

    async def main():
        async with serving(tiny_repository, "tiny-llava") as client:
            return await talk(client)

    expected = [("messages[0].content[1].image_url.url", "bad_image"), ("messages[0].content[1].text", "invalid_field")]
    assert [(400, *each) for each in expected] == asyncio.run(main())


def test_whoever_leaves_while_pictures_are_seen_leaves_nothing(tiny_repository):
    """Callers that are cancelled at any moment hold no place in either engine, and others are answered."""

    async def use(model):
        expected = await answer(model, chat(("stay", PICTURES[1])), "b")
        for pause in range(12):
            tasks = [asyncio.create_task(answer(model, chat(("go", each)), f"t{pause}")) for each in PICTURES]
            await asyncio.sleep(pause * 0.002)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert expected == await answer(model, chat(("stay", PICTURES[1])), "c")
        return model.engine.stats().queued, model.sight.stats().queued, model.seeing.num_requests

    assert (0, 0, 0) == run(tiny_repository, "tiny-llava", use)


def test_pictures_of_who_has_left_are_not_seen(tiny_repository):
    """While another's picture is encoded, those that wait leave with their callers."""

    async def use(model):
        session = model.sight.lanes[0].sessions["pixel_values"]
        encode = session.run
        session.run = lambda feeds: time.sleep(0.5) or encode(feeds)
        first = asyncio.create_task(answer(model, chat(("a", PICTURES[0]))))
        await until(lambda: model.sight.stats().running)
        others = [asyncio.create_task(answer(model, chat(("b", each)))) for each in PICTURES[1:]]
        await until(lambda: model.sight.stats().queued == len(others))
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        left = model.sight.stats().queued
        await first
        return left

    assert 0 == run(tiny_repository, "tiny-llava", use)


def test_a_prompt_is_cut_anywhere():
    """Pieces of a prompt with two pictures, laid end to end, are the prompt; equal contents have equal features."""
    digests = (b"a" * 32, b"b" * 32)
    ids = [1, IMAGE_ID, 2, IMAGE_ID, 3]
    shown = [PromptPicture(common_pb2.Image(), "")] * 2
    prompt = pictured(ids, shown, IMAGE_ID, [[3], [3]])
    assert ((1,), (5,)) == prompt.starts
    features = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    seen = tuple(SeenPicture(*each) for each in zip((1, 5), digests, features, strict=True))
    source = PicturedIds(prompt.array, seen, VOCABULARY, prompt)
    assert [1, *[VOCABULARY] * 3, 2, *[VOCABULARY] * 3, 3] == source.piece(0, 9).tolist()
    assert [1, *[IMAGE_ID] * 3, 2, *[IMAGE_ID] * 3, 3] == source.array.tolist()
    whole = source.beside(0, 9).features
    for size in range(1, 9):
        pieces = [(start, min(start + size, 9)) for start in range(0, 9, size)]
        read = [source.beside(*each).features for each in pieces]
        laid = [
            np.zeros((stop - start, 3)) if part is None else part
            for (start, stop), part in zip(pieces, read, strict=True)
        ]
        assert np.array_equal(whole, np.concatenate(laid))
    # Of one picture behind its token and of one before it, the ids are the same.
    token = np.array([IMAGE_ID] * 4)
    one, other = (PicturedIds(token, (SeenPicture(at, digests[0], features[0]),), VOCABULARY, prompt) for at in (0, 1))
    assert one.content(0, 4) != other.content(0, 4)
    swapped = tuple(SeenPicture(*each) for each in zip((1, 5), digests[::-1], features, strict=True))
    assert source.content(4, 8) != PicturedIds(prompt.array, swapped, VOCABULARY, prompt).content(4, 8)


def test_no_more_than_a_context_holds_is_asked_of_a_picture(tiny_repository):
    """The longest prompt that fits, pictures and all, is answered with the one token that is left."""

    async def use(model):
        _, bare = await answer(model, chat((PICTURES[0],)))
        filled = chat(("a" * (MAX_TOKENS - 1 - bare), PICTURES[0]))
        decoding = common_pb2.Decoding(max_new_tokens=1, greedy=common_pb2.Greedy())
        return (await ask(model, messages=filled, decoding=decoding)).completion.usage.input_tokens

    assert run(tiny_repository, "tiny-llava", use) in (MAX_TOKENS - 1, MAX_TOKENS - 2)
