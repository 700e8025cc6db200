"""A text that is split is answered as its sentences are, all together or not at all."""

import asyncio
import math
import threading
import time
from contextlib import aclosing, contextmanager, suppress

import pytest

from loaded import Loaded, answering, ask
from waiting import until
from weft_proto.v1 import common_pb2, translation_pb2
from weft_server.errors import DeadlineExpired, InvalidRequest, Overloaded
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.preprocessing.inputs import MAX_SENTENCES, MAX_SPLIT_CHARS
from weft_server.requests.segments import joint

SENTENCES = ["the cat eats .", "the dog finds the house .", "the red bird sees a dog .", "we are in the green tree"]
# Small letters follow, so only the ends of lines cut.
GAPS = ["\n", " \r\n\n ", "\n  "]
TEXT = "".join(sentence + gap for sentence, gap in zip(SENTENCES, [*GAPS, ""], strict=True))
MANY = common_pb2.Decoding(max_new_tokens=24, min_new_tokens=24)


async def stream(model, deadline=math.inf, **request):
    """The events of a streamed translation."""
    REQUEST_CONTEXT.set(RequestContext("StreamTranslate", deadline=deadline))
    asked = translation_pb2.StreamTranslateRequest(request=translation_pb2.TranslateRequest(**request))
    async with aclosing(answering(model)["StreamTranslate"](asked, None)) as events:
        async for event in events:
            yield event


@contextmanager
def held(model):
    """Let the model's lane take no step of its rows until the block ends."""
    (lane,), free = model.engine.lanes, threading.Event()
    decode = lane.runner.decode

    def wait(num_rows):
        assert free.wait(30)
        return decode(num_rows)

    lane.runner.decode = wait
    try:
        yield
    finally:
        lane.runner.decode = decode
        free.set()


def loaded(repository, name="tiny-translate", **settings):
    """A translator."""
    return Loaded(repository / name / "1", **settings)


def test_an_answer_is_those_of_its_sentences(tiny_repository):
    """Texts are joined by the white space of the source, ids and scores are one after the other, usage is summed."""

    async def run():
        async with loaded(tiny_repository) as model:
            request = {"return_scores": True, "decoding": common_pb2.Decoding(max_new_tokens=7)}
            alone = [(await ask(model, text=text, **request)).completion for text in SENTENCES]
            whole = (await ask(model, text=f" {TEXT}\n", split_sentences=True, **request)).completion
            joined = "".join(each.text + gap for each, gap in zip(alone, [*GAPS, ""], strict=True))
            assert joined == whole.text
            for field in ("token_ids", "token_log_probs", "tokens"):
                assert [part for each in alone for part in getattr(each, field)] == list(getattr(whole, field))
            assert sum(each.usage.input_tokens for each in alone) == whole.usage.input_tokens
            assert sum(each.usage.output_tokens for each in alone) == whole.usage.output_tokens
            assert max(each.finish_reason for each in alone) == whole.finish_reason
            assert 1 == model.metrics.counters["finished_total", "length"].value - sum(
                each.finish_reason == common_pb2.FINISH_REASON_LENGTH for each in alone
            )

    asyncio.run(run())


def test_one_sentence_is_answered_as_without_the_field(tiny_repository):
    """The very same answer, white space around it included, greedy and sampled."""

    async def run():
        async with loaded(tiny_repository) as model:
            for text in (SENTENCES[0], f"  {SENTENCES[1]} \n", "the cat"):
                for decoding in (common_pb2.Decoding(), common_pb2.Decoding(sampling=common_pb2.Sampling(seed=5))):
                    request = {"text": text, "decoding": decoding, "return_scores": True}
                    plain = (await ask(model, **request)).completion
                    split = (await ask(model, split_sentences=True, **request)).completion
                    for each in (plain, split):
                        each.ClearField("timings")
                        each.ClearField("request_id")
                    assert plain == split

    asyncio.run(run())


@pytest.mark.parametrize("stop", [[], ["an"]])
def test_a_stream_is_the_whole_answer(tiny_repository, stop):
    """Deltas come in the order of the sentences; joined they are the text of the unary answer."""

    async def run():
        async with loaded(tiny_repository) as model:
            request = {"text": TEXT, "split_sentences": True, "decoding": common_pb2.Decoding(stop=stop)}
            whole = (await ask(model, **request)).completion
            events = [event async for event in stream(model, **request)]
            assert whole.text == "".join(event.delta.text for event in events)
            assert all(event.delta.text for event in events[:-1])
            final = events[-1].final.completion
            assert (whole.text, whole.token_ids, whole.usage) == (final.text, final.token_ids, final.usage)

    asyncio.run(run())


def test_a_stop_string_in_a_sentence_ends_the_answer(tiny_repository):
    """What comes behind that sentence is left out, and nobody is counted as gone."""

    async def run():
        async with loaded(tiny_repository) as model:
            alone = [(await ask(model, text=text)).completion.text for text in SENTENCES]
            at, stop = next(
                (at, word)
                for at in (1, 2)
                for word in alone[at].split()
                if not any(word in text for text in alone[:at])
            )
            before = "".join(text + gap for text, gap in zip(alone[:at], GAPS, strict=False))
            decoding = common_pb2.Decoding(stop=[stop])
            cut = (await ask(model, text=TEXT, split_sentences=True, decoding=decoding)).completion
            assert before + alone[at].split(stop)[0] == cut.text
            assert common_pb2.FINISH_REASON_STOP_STRING == cut.finish_reason
            stages = ("queued", "decode")
            assert [0, 0] == [model.metrics.counters["cancelled_total", stage].value for stage in stages]

    asyncio.run(run())


def test_sentences_behind_a_stop_string_are_not_cancelled_by_a_caller(tiny_repository):
    """They wait still when the answer ends, and the request counts as answered only."""

    async def run():
        async with loaded(tiny_repository, lanes=1, slots=1) as model:
            first = (await ask(model, text=SENTENCES[0])).completion.text
            decoding = common_pb2.Decoding(stop=[first.split()[0]])
            cut = (await ask(model, text=TEXT, split_sentences=True, decoding=decoding)).completion
            assert common_pb2.FINISH_REASON_STOP_STRING == cut.finish_reason
            stages = ("queued", "prefill", "decode")
            assert [0, 0, 0] == [model.metrics.counters["cancelled_total", stage].value for stage in stages]

    asyncio.run(run())


def test_a_long_sentence_is_cut_into_parts_that_the_model_takes(tiny_repository):
    """Behind a clause, or else between words; each part is answered as it would be alone."""

    async def run():
        async with loaded(tiny_repository) as model:
            most = model.reader.max_tokens
            text = " ".join(["the cat"] * most)
            with pytest.raises(InvalidRequest):
                await ask(model, text=text)
            answer = (await ask(model, text=text, split_sentences=True)).completion
            per_part = most - (len(model.source_tokenizer.encode("the")) - 1)
            parts = [" ".join(text.split()[at : at + per_part]) for at in range(0, 2 * most, per_part)]
            alone = [(await ask(model, text=part)).completion for part in parts]
            assert " ".join(each.text for each in alone) == answer.text
            assert len(parts) > 1

    asyncio.run(run())


def test_a_prefix_stands_before_each_sentence(tiny_repository):
    """A text-to-text model is told for each of them what to do."""

    async def run():
        async with loaded(tiny_repository, "tiny-t5") as model:
            alone = [(await ask(model, text=f"translate : {text}")).completion for text in SENTENCES[:2]]
            text = f"translate : {SENTENCES[0]}\n{SENTENCES[1]}"
            whole = (await ask(model, text=text, split_sentences=True)).completion
            assert f"{alone[0].text}\n{alone[1].text}" == whole.text
            assert sum(each.usage.input_tokens for each in alone) == whole.usage.input_tokens
            with pytest.raises(InvalidRequest, match="must begin with one of"):
                await ask(model, text=TEXT, split_sentences=True)

    asyncio.run(run())


DEFAULTS = [
    {"beams": {"num_beams": 4}, "num_outputs": 3},
    {"sampling": {"seed": 1}, "num_outputs": 2},
    {"alternatives": {}, "num_outputs": 2},
    {"prefix": {"token_ids": {"ids": [7, 8]}}},
]


@pytest.mark.parametrize("default", DEFAULTS)
def test_a_models_own_settings_do_not_keep_it_from_splitting(tiny_repository, default):
    """Nobody asked for its number of answers: each sentence has the best. Each begins with the model's own prefix."""

    async def run():
        async with loaded(tiny_repository) as model:
            model.manifest.decoding.MergeFrom(common_pb2.Decoding(**default))
            alone = [(await ask(model, text=text)).completion for text in SENTENCES]
            whole = (await ask(model, text=TEXT, split_sentences=True)).completion
            assert "".join(each.text + gap for each, gap in zip(alone, [*GAPS, ""], strict=True)) == whole.text
            assert [id_ for each in alone for id_ in each.token_ids] == list(whole.token_ids)
            assert 1 == whole.decoding.num_outputs
            assert not whole.others
            for field, asked in (("num_outputs", {"num_outputs": 2}), ("prefix", {"prefix": {"text": "w5"}})):
                decoding = common_pb2.Decoding(beams={"num_beams": 2}, **asked)
                with pytest.raises(InvalidRequest, match="send each sentence by itself") as refused:
                    await ask(model, text=TEXT, split_sentences=True, decoding=decoding)
                assert f"decoding.{field}" == refused.value.field

    asyncio.run(run())


REFUSED = [
    ({"text": "  "}, "text", "EMPTY_INPUT"),
    ({"token_ids": common_pb2.TokenIds(ids=[5])}, "split_sentences", "WRONG_INPUT_KIND"),
    ({"text": "a.", "explain": common_pb2.Explain()}, "explain", "INVALID_FIELD"),
    ({"text": "a\n" * (MAX_SENTENCES + 1)}, "text", "INPUT_TOO_LONG"),
    ({"text": "a" * (MAX_SPLIT_CHARS + 1)}, "text", "INPUT_TOO_LONG"),
    ({"text": "the cat.\n" + "a" * 100_000}, "text", "INPUT_TOO_LONG"),
    (
        {"text": "a.", "decoding": common_pb2.Decoding(max_new_tokens=99_999)},
        "decoding.max_new_tokens",
        "INVALID_FIELD",
    ),
]


@pytest.mark.parametrize(("request_", "field", "reason"), REFUSED)
def test_what_cannot_be_split_is_refused_by_its_field(tiny_repository, request_, field, reason):
    """And nothing of it is left behind: `Loaded` looks."""

    async def run():
        async with loaded(tiny_repository) as model:
            with pytest.raises(InvalidRequest) as refused:
                await ask(model, split_sentences=True, **request_)
            assert (field, reason) == (refused.value.field, refused.value.reason)

    asyncio.run(run())


def test_as_many_sentences_as_are_allowed_are_answered(tiny_repository):
    """256 of them, in a queue that holds so many."""

    async def run():
        async with loaded(tiny_repository) as model:
            text = "\n".join(["the cat"] * MAX_SENTENCES)
            decoding = common_pb2.Decoding(max_new_tokens=1)
            answer = (await ask(model, text=text, split_sentences=True, decoding=decoding)).completion
            assert MAX_SENTENCES == answer.usage.output_tokens == len(answer.text.split("\n"))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({"max_queued_requests": 3}, InvalidRequest, "INPUT_TOO_LONG"),
        ({"max_queued_requests": 5}, Overloaded, "QUEUE_FULL"),
        ({"max_queued_tokens": 20}, Overloaded, "TOKEN_BUDGET"),
    ],
)
def test_sentences_wait_all_or_none(tiny_repository, settings, error, reason):
    """Where they do not all fit beside what waits, none of them waits, and no place is kept."""

    async def run():
        async with loaded(tiny_repository, lanes=1, slots=1, **settings) as model:
            with held(model):
                others = [asyncio.create_task(ask(model, text=SENTENCES[0], decoding=MANY)) for _ in range(3)]
                await until(lambda: model.engine.stats().queued == 2 and model.engine.stats().running)
                with pytest.raises(error) as refused:
                    await ask(model, text=TEXT, split_sentences=True)
                assert reason == refused.value.reason
                assert 2 == model.engine.stats().queued
            await asyncio.gather(*others)

    asyncio.run(run())


def test_sentences_are_cancelled_together(tiny_repository):
    """When the caller goes, or the deadline passes, none of them runs on: `Loaded` looks."""

    async def run():
        async with loaded(tiny_repository, lanes=1, slots=2) as model:
            request = {"text": TEXT, "split_sentences": True, "decoding": MANY}
            async with aclosing(stream(model, **request)) as events:
                await anext(events)
            await until(lambda: not model.engine.stats().running)
            with held(model):
                task = asyncio.create_task(ask(model, **request))
                await until(lambda: model.engine.stats().running)
                assert 2 == model.engine.stats().queued
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                assert 0 == model.engine.stats().queued
            with pytest.raises(DeadlineExpired):
                async for _ in stream(model, deadline=time.monotonic() + 0.005, **request):
                    pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("before", "gap", "after", "expected"),
    [
        ("Hello.", "\n\n", "World.", "\n\n"),
        ("Hello.", "", "World.", " "),
        ("你好。", "", "世界。", ""),
        ("Hello.", "", "世界。", ""),
        ("", "", "World.", ""),
        ("Hello.", "", "", ""),
        ("Hello. ", "", "World.", ""),
    ],
)
def test_translations_are_joined_as_their_sentences_are(before, gap, after, expected):
    """Where nothing stands between the sentences, as in Chinese, a script with spaces gets one."""
    assert expected == joint(before, gap, after)
