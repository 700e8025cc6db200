"""Vectors of tokens in requests: what there is room for, and by HTTP the same as by gRPC."""

import asyncio

import numpy as np
import pytest

from loaded import Loaded, ask, score
from openai_calls import serving
from weft_proto.v1 import common_pb2
from weft_server.errors import CannotScore, InvalidRequest
from weft_server.requests import token_vectors

QUERY, DOCUMENTS = "the cat", ["the dog finds", "the cat eats and the dog finds", "a bird"]


def run(repository, talk):
    """Serve the model, and return what somebody hears who talks to it by OpenAI's door."""

    async def served():
        async with serving(repository, "tiny-colbert") as client:
            return await talk(client)

    return asyncio.run(served())


def loaded(repository, name="tiny-colbert"):
    """A model with a vector for each token."""
    return Loaded(repository / name / "1")


def test_vectors_are_cut_and_then_of_length_1_again(tiny_repository):
    """Each of them, as one vector of a whole text is."""

    async def talk():
        async with loaded(tiny_repository) as model:
            (whole,) = (await ask(model, inputs=[{"text": QUERY}])).embeddings
            (cut,) = (await ask(model, inputs=[{"text": QUERY}], dimensions=3)).embeddings
            first = np.array(whole.token_vectors).reshape(-1, 8)[:, :3]
            expected = first / np.linalg.norm(first, axis=1, keepdims=True)
            assert pytest.approx(expected.flatten(), abs=1e-6) == list(cut.token_vectors)

    asyncio.run(talk())


def test_an_answer_has_no_more_vectors_than_it_has_room_for(tiny_repository, monkeypatch):
    """The bound counts the bytes of all inputs, and what they are filled up with. One byte less is refused."""
    asked = [{"text": QUERY}] * 2
    needed = 2 * 12 * 8 * 4

    async def talk():
        async with loaded(tiny_repository) as model:
            monkeypatch.setattr(token_vectors, "MAX_VECTOR_BYTES", needed)
            assert 2 == len((await ask(model, inputs=asked, prompt_name="query")).embeddings)
            monkeypatch.setattr(token_vectors, "MAX_VECTOR_BYTES", needed - 1)
            with pytest.raises(InvalidRequest, match="their vectors take 768 bytes") as refused:
                await ask(model, inputs=asked, prompt_name="query")
            assert "INPUT_TOO_LONG" == refused.value.reason

    asyncio.run(talk())


def test_a_model_of_one_vector_scores_nothing(tiny_repository):
    """It is said by the name of the model."""

    async def talk():
        async with loaded(tiny_repository, "tiny-embed") as model:
            with pytest.raises((InvalidRequest, CannotScore), match="makes one vector of a text"):
                await score(model, text=QUERY, target_text="a")

    asyncio.run(talk())


def test_rerank_and_score_are_those_of_score(tiny_repository):
    """By OpenAI's door a ColBERT puts documents into order by the totals of Score, bit for bit."""

    async def talk(client):
        ranked = await client.post("/v1/rerank", model="tiny-colbert", query=QUERY, documents=DOCUMENTS)
        scored = await client.post("/v1/score", model="tiny-colbert", text_1=QUERY, text_2=DOCUMENTS)
        embedded = await client.post(
            "/v1/embeddings", model="tiny-colbert", input=QUERY, prompt_name="query", kinds=["tokens"]
        )
        return ranked, scored, embedded

    async def typed():
        async with loaded(tiny_repository) as model:
            totals = [(await score(model, text=QUERY, target_text=each)).total for each in DOCUMENTS]
            kinds = [common_pb2.VECTOR_KIND_TOKENS]
            (vectors,) = (await ask(model, inputs=[{"text": QUERY}], prompt_name="query", kinds=kinds)).embeddings
            return totals, vectors

    totals, vectors = asyncio.run(typed())
    ranked, scored, embedded = run(tiny_repository, talk)
    assert totals == [each["score"] for each in scored["data"]]
    order = sorted(range(len(totals)), key=lambda index: -totals[index])
    assert order == [each["index"] for each in ranked["results"]]
    assert [totals[index] for index in order] == [each["relevance_score"] for each in ranked["results"]]
    (datum,) = embedded["data"]
    assert list(vectors.token_ids) == datum["token_ids"]
    assert list(vectors.token_vectors) == [number for row in datum["token_embeddings"] for number in row]
    assert "embedding" not in datum
