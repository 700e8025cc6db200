"""Questions about pictures: with the picture as a memory, and with the picture before the words."""

import asyncio

import numpy as np
import pytest
import torch
from samples import sample
from tiny_answers import ANSWERING, MAX_QUESTION, VOCABULARY

from loaded import Loaded, ask, golden_request
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_proto.v1 import common_pb2
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS
from weft_server.errors import InvalidRequest, RequestError

both = pytest.mark.parametrize("name", ANSWERING)
PLACES = 25
QUESTIONS = ["a", "the big cat sees a red bird", "we see you and a dog or a house and a tree here", "blue"]


def run(repository, name, talk, **settings):
    """Load a model, and return what somebody hears who talks to it."""

    async def loaded():
        async with Loaded(repository / name / "1", **{"slots": 6, "lanes": 1} | settings) as model:
            return await talk(model)

    return asyncio.run(loaded())


def request(model, **more):
    """The golden picture, and a question about it."""
    asked = golden_request(model) | more
    if "token_ids" in more:
        asked.pop("text")
    return asked


@torch.inference_mode()
def by_torch(name, question, num_tokens):
    """The greedy answer by full recomputations."""
    checkpoint = sample(name)
    tokenizer = read_tokenizer(checkpoint, "words.json")
    pixels = read_picture("golden.png", checkpoint.files["golden.png"], checkpoint.image)
    ids = [checkpoint.text.start_id, *tokenizer.encode(question).ids]
    start = len(ids)
    while len(ids) < start + num_tokens and not set(ids[start:]) & set(checkpoint.text.end_ids):
        logits = checkpoint.model.decode(torch.tensor([ids]), torch.from_numpy(pixels)[None])
        ids.append(int(logits[0, -1].argmax()))
    return ids[start:]


@both
def test_answers_are_torchs(tiny_repository, name):
    """Whatever the question's length, the tokens are those of the model without caches."""

    async def answers(model):
        decoding = common_pb2.Decoding(max_new_tokens=8)
        asked = [ask(model, **request(model, text=each, decoding=decoding)) for each in QUESTIONS]
        return [list((await each).completion.token_ids) for each in asked]

    assert [by_torch(name, each, 8) for each in QUESTIONS] == run(tiny_repository, name, answers)


@both
def test_a_crowd_changes_no_bit(tiny_repository, name):
    """Greedy, drawn, several at once or searched: each answer is the same alone and among others."""
    decodings = [
        common_pb2.Decoding(),
        common_pb2.Decoding(sampling=common_pb2.Sampling(seed=3), num_outputs=3),
        common_pb2.Decoding(beams=common_pb2.Beams(num_beams=3)),
        common_pb2.Decoding(sampling=common_pb2.Sampling(seed=4)),
    ]
    asked = [(text, decoding) for text in QUESTIONS for decoding in decodings]

    async def answer(model, text, decoding):
        answer = await ask(model, **request(model, text=text, decoding=decoding, return_scores=True))
        told = answer.completion
        others = [(list(other.token_ids), list(other.token_log_probs)) for other in told.others]
        return list(told.token_ids), list(told.token_log_probs), others

    async def alone(model):
        return [await answer(model, *each) for each in asked]

    async def together(model):
        return await asyncio.gather(*(answer(model, *each) for each in asked))

    apart = run(tiny_repository, name, alone)
    assert apart == run(tiny_repository, name, together)
    assert {0, 2} == {len(others) for _, _, others in apart}


@pytest.mark.parametrize("name", [*ANSWERING, "tiny-speech"])
def test_a_search_scores_the_answer_alone(tiny_repository, name):
    """Its length is that of the answer: neither a question nor the language before a transcription is a part of it."""

    async def searched(model):
        decoding = common_pb2.Decoding(beams=common_pb2.Beams(num_beams=3), max_new_tokens=8)
        answer = await ask(model, **golden_request(model, decoding=decoding, return_scores=True))
        return answer.completion

    found = run(tiny_repository, name, searched)
    assert pytest.approx(sum(found.token_log_probs) / len(found.token_ids), rel=1e-5) == found.score


@both
def test_a_question_counts(tiny_repository, name):
    """Usage has the places of the picture and the tokens of the question, also as token ids."""

    async def usage(model):
        by_ids = request(model, token_ids=common_pb2.TokenIds(ids=[5, 6, 7, 3]))
        answers = [await ask(model, **each) for each in (request(model, text="a cat"), by_ids)]
        return [answer.completion.usage.input_tokens for answer in answers]

    assert [PLACES + 3, PLACES + 4] == run(tiny_repository, name, usage)


@both
def test_the_heat_of_an_answer_is_over_the_picture(tiny_repository, name):
    """A row for each token of the answer, none for the question, over the patches without the class token."""

    async def explained(model):
        plain = await ask(model, **request(model))
        answer = await ask(model, **request(model, explain=common_pb2.Explain()))
        assert plain.completion.token_ids == answer.completion.token_ids
        return answer

    answer = run(tiny_repository, name, explained)
    alignment = answer.alignment
    weights = np.array(alignment.weights).reshape(-1, alignment.grid_rows * alignment.grid_columns)
    assert (4, 6) == (alignment.grid_rows, alignment.grid_columns)
    assert len(answer.completion.token_ids) == len(alignment.target_tokens) == len(weights)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    # Of an answer behind a picture, some of each look is at words.
    assert max(alignment.source_mass) < 1


WRONG = {
    "no picture": ({"image": None}, "image", "EMPTY_INPUT"),
    "an empty picture": ({"image": common_pb2.Image()}, "image.data", "EMPTY_INPUT"),
    "no picture at all": ({"image": common_pb2.Image(data=b"\1" * 99)}, "image.data", "BAD_IMAGE"),
    "no question": ({"text": None}, "question", "EMPTY_INPUT"),
    "an empty question": ({"text": "  "}, "text", "EMPTY_INPUT"),
    "a long question": ({"text": "cat " * MAX_QUESTION}, "text", "INPUT_TOO_LONG"),
    "no tokens": ({"token_ids": common_pb2.TokenIds()}, "token_ids.ids", "EMPTY_INPUT"),
    "a wrong token": ({"token_ids": common_pb2.TokenIds(ids=[VOCABULARY])}, "token_ids.ids[0]", "TOKEN_OUT_OF_RANGE"),
    "many tokens": (
        {"token_ids": common_pb2.TokenIds(ids=[4] * (MAX_QUESTION + 1))},
        "token_ids.ids",
        "INPUT_TOO_LONG",
    ),
    "a long answer": ({"decoding": common_pb2.Decoding(max_new_tokens=25)}, "decoding.max_new_tokens", ""),
}


def test_what_is_wrong_is_named(tiny_repository):
    """By its field and reason, and the model answers the next request."""

    async def refusals(model):
        found = {}
        for what, (more, _, _) in WRONG.items():
            with pytest.raises(RequestError) as refused:
                await ask(model, **{key: value for key, value in request(model, **more).items() if value is not None})
            assert isinstance(refused.value, InvalidRequest), what
            found[what] = (refused.value.field, refused.value.reason)
        assert (await ask(model, **request(model))).completion.token_ids
        return found

    found = run(tiny_repository, "tiny-git", refusals)
    assert {what: (field, reason or found[what][1]) for what, (_, field, reason) in WRONG.items()} == found


@both
def test_the_longest_question_fits(tiny_repository, name):
    """With the longest answer, to the last place of the caches."""

    async def longest(model):
        ids = common_pb2.TokenIds(ids=[4] * MAX_QUESTION)
        decoding = common_pb2.Decoding(max_new_tokens=24, min_new_tokens=24)
        return await ask(model, **request(model, token_ids=ids, decoding=decoding))

    assert MAX_QUESTION > PREFILL_BUCKETS[0]
    answer = run(tiny_repository, name, longest)
    assert 24 == len(answer.completion.token_ids)
