"""What a request brings is refused at the door, by its field, when the model does not take it."""

import asyncio

import pytest

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest


def refusal(directory, **request):
    """The field and the message that a request is refused with."""

    async def run():
        async with Loaded(directory / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, **request)
            return refused.value.field, refused.value.message

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["the big dog", " translate : the big dog", "translate the big dog", "Shorten : a"])
def test_a_text_must_begin_with_a_prefix_of_the_model(tiny_repository, text):
    """None of the prefixes at the very beginning: refused, and the sentence lists them."""
    expected = "text must begin with one of 'translate : ', 'shorten : '"
    assert ("text", expected) == refusal(tiny_repository / "tiny-t5", text=text)


@pytest.mark.parametrize("text", ["translate : ", "shorten :  \n"])
def test_a_prefix_alone_is_an_empty_text(tiny_repository, text):
    """Nothing but white space behind it: refused as any empty text is."""

    async def run():
        async with Loaded(tiny_repository / "tiny-t5" / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, text=text)
            assert ("text", "EMPTY_INPUT") == (refused.value.field, refused.value.reason)

    asyncio.run(run())


def test_a_prefix_is_part_of_the_source(tiny_repository):
    """Either prefix is taken, as tokens of the source; ids are the caller's business."""

    async def run():
        async with Loaded(tiny_repository / "tiny-t5" / "1") as model:
            lengths = []
            for text in ("translate : the big dog", "shorten : the big dog"):
                answer = await ask(model, text=text)
                ids = model.source_tokenizer.encode(text)
                lengths.append(len(ids))
                assert len(ids) == answer.completion.usage.input_tokens
                of_ids = await ask(model, token_ids=common_pb2.TokenIds(ids=ids))
                assert answer.completion.token_ids == of_ids.completion.token_ids
            await ask(model, token_ids=common_pb2.TokenIds(ids=[5, 6]))

    asyncio.run(run())


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_a_model_without_languages_takes_none(tiny_repository, field):
    """A text-to-text model is told what to do by its prefix."""
    expected = f"{field} must be empty: this model takes no language"
    request = {"text": "translate : the big dog", field: "en"}
    assert (field, expected) == refusal(tiny_repository / "tiny-t5", **request)


def test_a_language_is_one_that_the_model_lists(tiny_repository):
    """Its own language may be named or left out; another is refused with the list."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            named = await ask(model, **golden_request(model, source_language="en", target_language="es"))
            unnamed = await ask(model, **golden_request(model))
            assert named.completion.text == unnamed.completion.text

    asyncio.run(run())
    refused = refusal(tiny_repository / "tiny-translate", text="the dog", source_language="fr")
    assert ("source_language", "source_language must be one of en, not 'fr'") == refused
