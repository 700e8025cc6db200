"""Laws of the messages of answers: the event loop writes short ones only, and all say the same."""

import asyncio
import threading

import pytest
import torch

from loaded import Loaded, ask, score
from weft_export.checkpoints.sound import wav_of
from weft_proto.v1 import common_pb2
from weft_server.rpc import responses
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding

NUM_TOPS = 5
IDS = common_pb2.TokenIds(ids=[5, 6, 7])


async def tops_of_generate(model, num_tokens):
    """Those of an answer."""
    decoding = common_pb2.Decoding(max_new_tokens=num_tokens, min_new_tokens=num_tokens)
    answer = await ask(model, token_ids=IDS, decoding=decoding, num_top_tokens=NUM_TOPS)
    return list(answer.completion.top_tokens)


async def tops_of_others(model, num_tokens):
    """Those of the best beam and of the second."""
    beams = common_pb2.Beams(num_beams=2, early_stopping=common_pb2.EARLY_STOPPING_NEVER)
    decoding = common_pb2.Decoding(
        beams=beams, num_outputs=2, max_new_tokens=num_tokens // 2, min_new_tokens=num_tokens // 2
    )
    answer = await ask(model, token_ids=IDS, decoding=decoding, num_top_tokens=NUM_TOPS)
    return [*answer.completion.top_tokens, *answer.completion.others[0].top_tokens]


async def tops_of_score(model, num_tokens):
    """Those at each place of a given answer."""
    target_ids = common_pb2.TokenIds(ids=range(8, 8 + num_tokens))
    return list((await score(model, token_ids=IDS, target_ids=target_ids, num_top_tokens=NUM_TOPS)).top_tokens)


@pytest.mark.parametrize("tops_of", [tops_of_generate, tops_of_others, tops_of_score])
def test_many_tops_are_written_beside_the_event_loop(tops_of, tiny_repository, monkeypatch):
    """20 of 1,023 tokens each of 16 outputs would stop all streams for a quarter of a second."""

    async def laws(model):
        threads, pieces = set(), model.target_tokenizer.pieces

        def noted(ids):
            if len(ids) == NUM_TOPS:
                threads.add(threading.current_thread())
            return pieces(ids)

        monkeypatch.setattr(model.target_tokenizer, "pieces", noted)
        monkeypatch.setattr(responses, "FEW_STEPS", 6, raising=False)
        few = await tops_of(model, 6)
        assert {threading.current_thread()} == threads
        threads.clear()
        many = await tops_of(model, 12)
        assert threads
        assert threading.current_thread() not in threads
        assert (6, 12) == (len(few), len(many))
        monkeypatch.setattr(responses, "FEW_STEPS", 12)
        assert many == await tops_of(model, 12)
        for top in many:
            assert pieces(top.token_ids) == list(top.tokens)
            assert sorted(top.log_probs, reverse=True) == list(top.log_probs)

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            await laws(model)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("strategy", "given"),
    [
        ("greedy", {}),
        ("alternatives", {"alternatives": True}),
        ("beams", {"beams": Beams(3, 0.5)}),
        ("sampling", {"sampling": Sampling(0.5, 7, 1.0, 9)}),
    ],
)
def test_an_answer_says_how_its_tokens_were_chosen(strategy, given):
    """By one of four strategies, with its numbers, and the lengths that held."""
    said = responses._decoding_proto(Decoding(8, 2, ("x",), num_outputs=3, **given))
    assert (strategy, 8, 2, ["x"], 3) == (
        said.WhichOneof("strategy"),
        said.max_new_tokens,
        said.min_new_tokens,
        list(said.stop),
        said.num_outputs,
    )
    if strategy == "beams":
        assert (3, 0.5) == (said.beams.num_beams, said.beams.length_penalty)
    if strategy == "sampling":
        assert (0.5, 7, 1.0, 9) == (
            said.sampling.temperature,
            said.sampling.top_k,
            said.sampling.top_p,
            said.sampling.seed,
        )


@pytest.mark.parametrize(
    ("name", "ask_once"),
    [
        ("tiny-generate", lambda model: ask(model, token_ids=IDS)),
        ("tiny-generate", lambda model: score(model, token_ids=IDS, target_ids=IDS)),
        ("tiny-text", lambda model: ask(model, text="w3")),
        ("tiny-embed", lambda model: ask(model, inputs=[{"text": "w3"}])),
        ("tiny-translate", lambda model: ask(model, text="w3", split_sentences=True)),
    ],
    ids=["generate", "score", "classify", "embed", "sentences"],
)
def test_how_long_an_input_took_to_read_is_observed_once_a_request(tiny_repository, name, ask_once):
    """Of each verb, and of all parts of a request together."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            await ask_once(model)
            assert 1 == model.metrics.preprocess.snapshot()[0][-1][1]

    asyncio.run(run())


def test_an_answer_without_text_took_what_its_one_run_took(tiny_repository):
    """Its times are in order: a wait, a run, and no decoding."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            return (await ask(model, text="w3")).timings

    timings = asyncio.run(run())
    assert timings.prefill.ToNanoseconds() > 0
    assert timings.queue.ToNanoseconds() >= 0
    assert 0 == timings.decode.ToNanoseconds()


def test_a_transcription_says_how_long_its_recording_is(tiny_repository):
    """In seconds."""
    recording = common_pb2.Audio(data=wav_of(torch.zeros(1000), 4000))

    async def run():
        async with Loaded(tiny_repository / "tiny-speech" / "1") as model:
            return await ask(model, audio=recording, language="de")

    assert 0.25 == asyncio.run(run()).duration_s
