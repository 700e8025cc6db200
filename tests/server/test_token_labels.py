"""Laws of tagging: each token its label and its place in the text, alike for text and ids."""

import asyncio
import random

import numpy as np
import pytest

from loaded import Loaded, ask
from weft_proto.v1 import classification_pb2, common_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.token_labels import spans_of

WORDS = ["a", "the", "small", "big", "red", "cat", "dog", "house", "tree", "sees", "ñandú", "😀", "we", "you"]


def texts(count):
    """Words known and unknown, with white space of any kind before and between them."""
    rng = random.Random(6)
    for _ in range(count):
        words = [rng.choice(WORDS) for _ in range(rng.randrange(1, 24))]
        yield "".join(rng.choice([" ", "  ", "\n", "\t "]) + word for word in words)


def test_tokens_stand_where_the_text_has_them(tiny_repository):
    """Without special tokens, in order, each is the text's word at its place; usage counts the special ones too."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            for text in texts(40):
                answer = await ask(model, text=text)
                assert text.split() == [text[token.start : token.end] for token in answer.tokens]
                assert len(answer.tokens) + 2 == answer.usage.input_tokens
                for token in answer.tokens:
                    word = text[token.start : token.end]
                    assert (word if word.isascii() else "[UNKNOWN]") == token.token
                    assert model.manifest.labels[token.index] == token.label
                assert spans_of(answer.tokens, text) == list(answer.spans)
                assert any(answer.spans) or all(token.label == "O" for token in answer.tokens)

    asyncio.run(run())


def test_labels_are_the_graphs_most_probable(tiny_repository):
    """Index and score of each token are those of the graph run alone on the tokenized text."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            session = model.engine.lanes[0].sessions["input_ids"]
            text = next(texts(1))
            ids = np.array([model.source_tokenizer.encode(text)])
            expected = session.run({"input_ids": ids, "lengths": np.array([ids.size], np.int32)})["probabilities"][0]
            answer = await ask(model, text=text)
            assert expected.argmax(axis=1)[1:-1].tolist() == [token.index for token in answer.tokens]
            scores = [token.score for token in answer.tokens]
            np.testing.assert_allclose(expected.max(axis=1)[1:-1], scores, atol=1e-6)

    asyncio.run(run())


def test_ids_get_the_labels_of_their_text(tiny_repository):
    """Tokenized by the caller, a text gets the same labels and scores, but no places and no spans."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            for text in texts(20):
                of_text = await ask(model, text=text)
                ids = common_pb2.TokenIds(ids=model.source_tokenizer.encode(text))
                of_ids = await ask(model, token_ids=ids)
                assert not of_ids.spans
                for token in of_text.tokens:
                    token.start = token.end = 0
                assert of_text.tokens == of_ids.tokens

    asyncio.run(run())


@pytest.mark.parametrize("text", ["[START] cat", "cat [END] dog", "[START] [START]", "[END] [START] [END]"])
def test_special_tokens_that_the_text_spells_are_tagged(tiny_repository, text):
    """They are tokens like any other, for the text and for its ids; only those that the tokenizer adds are not."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            of_text = await ask(model, text=text)
            assert text.split() == [token.token for token in of_text.tokens]
            ids = model.source_tokenizer.encode(text)
            of_ids = await ask(model, token_ids=common_pb2.TokenIds(ids=ids))
            assert text.split() == [token.token for token in of_ids.tokens]

    asyncio.run(run())


def test_an_answer_keeps_only_its_own_probabilities(tiny_repository):
    """In a batch too, a reply holds [tokens, labels] of its own and no view of the batch's."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1", lanes=1) as model:
            lane = model.engine.lanes[0]
            step, kept = lane.step, []

            def watched(take):
                deliveries = step(take)
                kept.extend((delivery.sequence.num_input_tokens, delivery.values) for delivery in deliveries)
                return deliveries

            lane.step = watched
            await asyncio.gather(*(ask(model, text=text) for text in texts(30)))
            assert 30 == len(kept)
            for num_tokens, probabilities in kept:
                assert (num_tokens, 5) == probabilities.shape
                assert probabilities.base is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "field", "reason"),
    [
        ({}, "input", "EMPTY_INPUT"),
        ({"text": " \n"}, "text", "EMPTY_INPUT"),
        ({"text": "cat " * 76}, "text", "INPUT_TOO_LONG"),
        ({"text": "cat" * 1000}, "text", "INPUT_TOO_LONG"),
        ({"token_ids": {}}, "token_ids.ids", "EMPTY_INPUT"),
        ({"token_ids": {"ids": [4] * 78}}, "token_ids.ids", "INPUT_TOO_LONG"),
        ({"token_ids": {"ids": [4, 1000]}}, "token_ids.ids[1]", "TOKEN_OUT_OF_RANGE"),
        ({"text": "cat", "request_id": "ñ"}, "request_id", "INVALID_FIELD"),
    ],
)
def test_what_cannot_be_tagged_is_refused(tiny_repository, request_, field, reason):
    """As Classify does: the field, and a reason to switch on."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, **request_)
            assert (field, reason) == (refused.value.field, refused.value.reason)

    asyncio.run(run())


def test_a_longest_text_is_tagged(tiny_repository):
    """A text of exactly as many tokens as the model takes, special ones included, is not too long."""

    async def run():
        async with Loaded(tiny_repository / "tiny-tags" / "1") as model:
            answer = await ask(model, text="cat " * 28)
            assert 28 == len(answer.tokens)
            assert isinstance(answer, classification_pb2.TagResponse)

    asyncio.run(run())
