"""A call that embeds several inputs: each has the bits that it has alone, and all are admitted or none is."""

import asyncio
import contextlib
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from loaded import Loaded, ask
from pictures import png
from waiting import held, until
from weft_proto.v1 import common_pb2
from weft_server.engine import queue_limits
from weft_server.errors import InvalidRequest, LaneFailed, Overloaded
from weft_server.models.model import NUM_WORKERS
from weft_server.requests.embed import run_together
from weft_server.requests.generate import SHORT_BYTES
from weft_server.telemetry.metrics import Metrics

TEXTS = ["the cat", "the cat eats and the dog finds", "a bird", "we are in the green tree", "the cat"]


def inputs_of(texts):
    """Texts as a request has them."""
    return [{"text": text} for text in texts]


def loaded(repository, name="tiny-embed", **settings):
    """A model that embeds."""
    return Loaded(repository / name / "1", **settings)


def bits(answer):
    """The vectors of an answer, each as bytes."""
    return [np.array(each.values, np.float32).tobytes() for each in answer.embeddings]


def test_each_input_has_the_bits_that_it_has_alone(tiny_repository):
    """In the order of the inputs, of any lengths, as text or as its ids; tokens are counted of each and of all."""

    async def run():
        async with loaded(tiny_repository, lanes=1) as model:
            alone = [await ask(model, inputs=inputs_of([text])) for text in TEXTS]
            together = await ask(model, inputs=inputs_of(TEXTS))
            ids = model.source_tokenizer.encode(TEXTS[1])
            mixed = await ask(model, inputs=[{"text": TEXTS[0]}, {"token_ids": {"ids": ids}}])

            expected = [bits(answer)[0] for answer in alone]
            assert expected == bits(together)
            assert expected[:2] == bits(mixed)
            assert [each.usage.input_tokens for each in alone] == [each.input_tokens for each in together.embeddings]
            assert sum(each.usage.input_tokens for each in alone) == together.usage.input_tokens

    asyncio.run(run())


def test_a_short_text_waits_for_no_worker(tiny_repository):
    """It is read at once while all workers are busy. A long one has to wait for a worker, and so have several.

    Bytes count: of a ligature, a normalizer may make 18 characters.
    """

    async def run():
        async with loaded(tiny_repository) as model:
            free = threading.Event()
            busy = [asyncio.create_task(model.work(lambda _: free.wait(30))) for _ in range(NUM_WORKERS)]
            assert bits(await ask(model, inputs=inputs_of(TEXTS[:1])))
            asked = (TEXTS[:2], ["the " * SHORT_BYTES], ["\ufdfa" * (SHORT_BYTES // 3 + 1)])
            others = [asyncio.create_task(ask(model, inputs=inputs_of(texts))) for texts in asked]
            # Two more answers come meanwhile.
            for text in TEXTS[:2]:
                await ask(model, inputs=inputs_of([text]))
            assert not any(task.done() for task in others)
            free.set()
            several, long, wide = await asyncio.gather(*others, return_exceptions=True)
            assert (2, 1) == (len(several.embeddings), len(wide.embeddings))
            assert "INPUT_TOO_LONG" == long.reason
            await asyncio.gather(*busy)

    asyncio.run(run())


@pytest.mark.parametrize("normalized", [True, False])
def test_a_vector_is_cut_and_then_of_length_1_again(tiny_repository, normalized):
    """Only a model whose vectors have the length 1 changes what is left; all dimensions are the vector itself."""

    async def run():
        async with loaded(tiny_repository) as model:
            model.manifest.embedding.normalized = normalized
            (whole,) = (await ask(model, inputs=inputs_of(TEXTS[:1]))).embeddings
            (same,) = (await ask(model, inputs=inputs_of(TEXTS[:1]), dimensions=24)).embeddings
            assert whole == same
            for dimensions in (1, 5):
                (cut,) = (await ask(model, inputs=inputs_of(TEXTS[:1]), dimensions=dimensions)).embeddings
                first = np.array(whole.values[:dimensions])
                expected = first / np.linalg.norm(first) if normalized else first
                assert pytest.approx(expected, abs=1e-7) == list(cut.values)

    asyncio.run(run())


def test_an_explanation_is_of_one_input(tiny_repository):
    """Its row says which tokens the vector was read from, and sums to 1. Several inputs are refused."""

    async def run():
        async with loaded(tiny_repository) as model:
            explain = common_pb2.Explain()
            plain = await ask(model, inputs=inputs_of(TEXTS[1:2]))
            answer = await ask(model, inputs=inputs_of(TEXTS[1:2]), explain=explain)
            assert bits(plain) == bits(answer)
            assert ["embedding"] == list(answer.alignment.target_tokens)
            assert answer.usage.input_tokens == len(answer.alignment.source_tokens) == len(answer.alignment.weights)
            assert pytest.approx(1, abs=1e-5) == sum(answer.alignment.weights)
            with pytest.raises(InvalidRequest, match=r"^explain is for one input, and there are 2$"):
                await ask(model, inputs=inputs_of(TEXTS[:2]), explain=explain)

    asyncio.run(run())


REFUSED = [
    ({"inputs": []}, "inputs", "EMPTY_INPUT"),
    ({"inputs": [{"text": "a"}, {}]}, "inputs[1].input", "EMPTY_INPUT"),
    ({"inputs": [{"text": "a"}, {"text": " "}]}, "inputs[1].text", "EMPTY_INPUT"),
    ({"inputs": [{"text": "a"}, {"text": "a " * 99}]}, "inputs[1].text", "INPUT_TOO_LONG"),
    ({"inputs": [{"token_ids": {"ids": [5, 99]}}]}, "inputs[0].token_ids.ids[1]", "TOKEN_OUT_OF_RANGE"),
    ({"inputs": [{"text": "a"}, {"image": {"data": b"x"}}]}, "inputs[1].image", "WRONG_INPUT_KIND"),
    ({"inputs": [{"text": "a"}] * 257}, "inputs", "INPUT_TOO_LONG"),
    ({"inputs": [{"text": "a"}], "dimensions": 0}, "dimensions", "INVALID_FIELD"),
    ({"inputs": [{"text": "a"}], "dimensions": 25}, "dimensions", "INVALID_FIELD"),
]


@pytest.mark.parametrize(("request_", "field", "reason"), REFUSED)
def test_what_is_wrong_is_named_by_its_place(tiny_repository, request_, field, reason):
    """One wrong input refuses the call, and leaves no place taken."""

    async def run():
        async with loaded(tiny_repository) as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, **request_)
            assert (field, reason) == (refused.value.field, refused.value.reason)
            assert refused.value.message.startswith(f"{field} ")

    asyncio.run(run())


def test_a_picture_is_named_by_its_place(tiny_repository):
    """What is wrong with it is said as elsewhere."""

    async def run():
        async with loaded(tiny_repository, "tiny-embed-image") as model:
            with pytest.raises(InvalidRequest, match=r"^inputs\[0\]\.image\.data is not a PNG, JPEG or WebP picture$"):
                await ask(model, inputs=[{"image": {"data": b"no picture"}}])

    asyncio.run(run())


def test_all_inputs_wait_or_none(tiny_repository):
    """Where there is no room for all, none is taken; more than may ever wait together are the caller's mistake."""

    async def run():
        async with loaded(tiny_repository, max_queued_requests=4, lanes=1) as model:
            with held(model):
                first = asyncio.create_task(ask(model, inputs=inputs_of(TEXTS[:1])))
                await until(lambda: model.stats().running == 1)
                others = asyncio.create_task(ask(model, inputs=inputs_of(TEXTS[:3])))
                await until(lambda: model.stats().queued == 3)
                with pytest.raises(Overloaded) as refused:
                    await ask(model, inputs=inputs_of(TEXTS[:2]))
                assert "QUEUE_FULL" == refused.value.reason
                assert 3 == model.stats().queued
                with pytest.raises(InvalidRequest, match=r"^inputs must be 1\.\.4, not 5$"):
                    await ask(model, inputs=inputs_of(TEXTS))
            await first
            assert 3 == len((await others).embeddings)

    asyncio.run(run())


def test_inputs_of_any_length_are_taken_where_nothing_waits(tiny_repository):
    """Also beyond the bound of tokens: no retry would help them. Beside what waits they are refused, and one is not."""

    async def run():
        async with loaded(tiny_repository, max_queued_tokens=20, lanes=1) as model:
            many = inputs_of(TEXTS * 4)
            assert len(many) == len((await ask(model, inputs=many)).embeddings)
            with held(model):
                first = asyncio.create_task(ask(model, inputs=many[:1]))
                await until(lambda: model.stats().running == 1)
                second = asyncio.create_task(ask(model, inputs=many[:1]))
                await until(lambda: model.stats().queued_tokens)
                with pytest.raises(Overloaded) as refused:
                    await ask(model, inputs=many)
                assert ("TOKEN_BUDGET", 1) == (refused.value.reason, model.stats().queued)
            await asyncio.gather(first, second)

    asyncio.run(run())


def test_a_caller_who_goes_takes_all_inputs_along(tiny_repository):
    """None of them waits on."""

    async def run():
        async with loaded(tiny_repository, lanes=1) as model:
            with held(model):
                first = asyncio.create_task(ask(model, inputs=inputs_of(TEXTS[:1])))
                await until(lambda: model.stats().running == 1)
                gone = asyncio.create_task(ask(model, inputs=inputs_of(TEXTS[1:])))
                await until(lambda: model.stats().queued == 4)
                gone.cancel()
                await until(lambda: model.stats().queued == 0)
            await first

    asyncio.run(run())


class _Engine:
    """Notes what is done with sequences."""

    def __init__(self):
        self.done = []

    def reserve(self, standing, count, *, deadline):
        """As an Engine's."""
        self.done.append(("reserve", count))

    def submit(self, *sequences):
        """As an Engine's."""
        self.done.append(("submit", *sequences))

    def cancel(self, sequence):
        """As an Engine's."""
        self.done.append(("cancel", sequence))


@pytest.mark.parametrize("ending", [asyncio.CancelledError(), LaneFailed("STEP_FAILED", "it failed"), None])
def test_inputs_of_a_request_leave_the_engine_together(ending):
    """When their caller goes, when one of them fails, and when all are done: then there is nothing left to leave."""
    engine = _Engine()

    async def done():
        if ending:
            raise ending

    async def read():
        return both

    both = [SimpleNamespace(reply=SimpleNamespace(done=done)) for _ in range(2)]
    call = SimpleNamespace(standing=None, deadline=math.inf, sequence=lambda source: source)
    model = SimpleNamespace(engine=engine, metrics=Metrics().for_model("m", 1, "t"))
    with contextlib.suppress(asyncio.CancelledError, LaneFailed):
        asyncio.run(run_together(call, model, 1, read))
    leaving = [("cancel", each) for each in both]
    assert [("reserve", 1), ("reserve", 1), ("submit", *both), *leaving] == engine.done


def test_pictures_that_wait_are_bounded_by_their_bytes(tiny_repository, monkeypatch):
    """A file of few bytes has many of pixel values. Beyond the bound one more is refused, the others have theirs."""

    async def run():
        async with loaded(tiny_repository, "tiny-embed-image", lanes=1) as model:
            image = model.manifest.image
            size = 4 * image.channels * image.height * image.width
            monkeypatch.setattr(queue_limits, "MAX_BYTES", 2 * size)
            asked = {"inputs": [{"image": {"data": png()}}]}
            with held(model, "pixel_values"):
                runs = asyncio.create_task(ask(model, **asked))
                await until(lambda: model.engine.stats().running)
                waits = [asyncio.create_task(ask(model, **asked)) for _ in range(2)]
                num_tokens = image.num_class_tokens + image.grid_rows * image.grid_columns
                await until(lambda: 2 * num_tokens == model.engine.stats().queued_tokens)
                with pytest.raises(Overloaded, match=f"inputs of {2 * size:,} bytes are waiting") as refused:
                    await ask(model, **asked)
                assert ("BYTE_BUDGET", 2) == (refused.value.reason, model.engine.stats().queued)
            answers = [bits(each) for each in await asyncio.gather(runs, *waits)]
            assert answers == [answers[0]] * 3
            assert answers[0] == bits(await ask(model, **asked))

    asyncio.run(run())
