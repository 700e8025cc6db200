"""What a caller gets of a beam search, and what is refused: the services without the wire."""

import asyncio
import random
from contextlib import aclosing

import pytest

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.models.request_context import RequestContext
from weft_server.requests.generate import complete, input_of
from weft_server.runtime.next_tokens import candidates_of

Beams = common_pb2.Beams
TEXT = "The dog eats. A big cat sleeps here! Two birds"


def searched(num_beams=3, **more):
    """A Decoding that searches."""
    beams = {name: more.pop(name) for name in ("length_penalty", "early_stopping") if name in more}
    return common_pb2.Decoding(beams=Beams(num_beams=num_beams, **beams), **more)


def plain(completion):
    """What does not change from call to call."""
    completion.ClearField("timings")
    completion.ClearField("request_id")
    return completion


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption", "tiny-gpt", "tiny-attention-rnn"])
def test_an_answer_has_the_best_first_and_all_scores(tiny_repository, name):
    """Best first, each score that of its tokens; what was resolved is echoed; all tokens of answers are counted."""

    async def run():
        async with Loaded(tiny_repository / name / "1", slots=9, lanes=2) as model:
            assert (4, 4) == model.widths[:2]
            request = golden_request(model, return_scores=True)
            best = (await ask(model, **request, decoding=searched(4, max_new_tokens=9))).completion
            several = searched(4, max_new_tokens=9, num_outputs=4, length_penalty=0.5)
            one, *others = await asyncio.gather(*(ask(model, **request, decoding=several) for _ in range(5)))
            assert all(plain(one.completion) == plain(other.completion) for other in others)
            answer = one.completion
            outputs = [answer, *answer.others]
            assert [one.score for one in outputs] == sorted((one.score for one in outputs), reverse=True)
            for output in outputs:
                total = output.score * len(output.token_ids) ** 0.5
                assert pytest.approx(total, rel=1e-5) == sum(output.token_log_probs)
                assert len(output.token_ids) == len(output.tokens)
                assert model.target_tokenizer.decode(list(output.token_ids)) == output.text
            assert len(outputs) == len({tuple(output.token_ids) for output in outputs})
            assert sum(len(output.token_ids) for output in outputs) == answer.usage.output_tokens
            assert ([], True) == (list(best.others), best.HasField("score"))
            heuristic = common_pb2.EARLY_STOPPING_HEURISTIC
            assert Beams(num_beams=4, length_penalty=1, early_stopping=heuristic) == best.decoding.beams
            assert 4 == answer.decoding.num_outputs
            greedy = (await ask(model, **request)).completion
            assert not greedy.HasField("score")

    asyncio.run(run())


def test_a_search_does_not_score_a_prefix(tiny_repository):
    """Its tokens have log-probabilities, but count neither in the sum nor in the length, nor does what is before it."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            prefix = common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=[5, 6, 7]))
            for num_given, more in ((3, {}), (4, {"forced_first_id": 9})):
                decoding = searched(4, length_penalty=2, num_outputs=4, max_new_tokens=12, prefix=prefix, **more)
                answer = (await ask(model, text="def", return_scores=True, decoding=decoding)).completion
                for one in (answer, *answer.others):
                    total = one.score * (len(one.token_ids) - num_given) ** 2
                    assert pytest.approx(sum(one.token_log_probs[num_given:]), rel=1e-5) == total

    asyncio.run(run())


def test_a_stream_of_several_outputs_or_of_a_search_is_its_final_message(tiny_repository):
    """No text comes before it."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            read = input_of(model, common_pb2.Phrase(text="def"), "text", model.languages.plain)
            for decoding in (
                searched(3),
                searched(1),
                common_pb2.Decoding(sampling={"seed": 1}, num_outputs=2),
                common_pb2.Decoding(alternatives={}),
            ):
                async with aclosing(complete(RequestContext("x"), model, read, decoding, streams=True)) as events:
                    (answer,) = [event async for event in events]
                assert answer.text

    asyncio.run(run())


def test_each_sentence_is_a_search_of_its_own(tiny_repository):
    """Joined they are the answer; it has no score, because each sentence has its own."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4, lanes=1) as model:
            whole = (await ask(model, text=TEXT, split_sentences=True, decoding=searched(4))).completion
            alone = [
                (await ask(model, text=text, decoding=searched(4))).completion
                for text in ("The dog eats.", "A big cat sleeps here!", "Two birds")
            ]
            assert " ".join(one.text for one in alone) == whole.text
            assert [token for one in alone for token in one.token_ids] == list(whole.token_ids)
            assert not whole.HasField("score")

    asyncio.run(run())


def test_a_search_is_cut_at_stop_strings_when_it_is_done(tiny_repository):
    """Each answer is that of the search without them, cut; scores stay."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            num_cut = 0
            for text in ("def", "x", "import a"):
                uncut, cut = [
                    (await ask(model, text=text, decoding=searched(4, num_outputs=4, stop=stop))).completion
                    for stop in ([], ["e"])
                ]
                for one, other in zip([uncut, *uncut.others], [cut, *cut.others], strict=True):
                    assert one.text.partition("e")[0] == other.text
                    assert one.score == other.score
                    stopped = other.finish_reason == common_pb2.FINISH_REASON_STOP_STRING
                    assert ("e" in one.text) == stopped
                    num_cut += stopped
            assert num_cut

    asyncio.run(run())


def test_a_single_alternative_is_cut_at_a_stop_string(tiny_repository):
    """As the greedy answer is, which it equals; also where each sentence has one."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4, lanes=1) as model:
            for split in (False, True):
                common = {"text": TEXT, "split_sentences": split}
                stop = [(await ask(model, **common)).completion.text.split()[1]]
                greedy, single = [
                    (await ask(model, **common, decoding=decoding)).completion
                    for decoding in (
                        common_pb2.Decoding(stop=stop),
                        common_pb2.Decoding(stop=stop, alternatives={}),
                    )
                ]
                assert common_pb2.FINISH_REASON_STOP_STRING == single.finish_reason
                assert (greedy.text, greedy.token_ids) == (single.text, single.token_ids)

    asyncio.run(run())


def test_the_first_of_several_answers_is_explained(tiny_repository):
    """A row for each of its tokens."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4, lanes=1) as model:
            answer = await ask(model, text="the dog", decoding=searched(3, num_outputs=3), explain={})
            assert len(answer.completion.token_ids) == len(answer.alignment.target_tokens)

    asyncio.run(run())


def test_searches_and_draws_are_counted_by_their_tokens(tiny_repository):
    """Tokens of all rows are counted. Each but a row's first is an interval; a request has one first token."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=8, lanes=1) as model:
            metrics = model.metrics
            decodings = [
                searched(3, max_new_tokens=6, min_new_tokens=6),
                common_pb2.Decoding(sampling={"seed": 1}, num_outputs=2, max_new_tokens=5),
                common_pb2.Decoding(max_new_tokens=4),
            ]
            answers = await asyncio.gather(*(ask(model, text="def", decoding=decoding) for decoding in decodings))
            drawn = answers[1].completion.usage.output_tokens
            greedy = answers[2].completion.usage.output_tokens
            generated = 3 * 6 + drawn + greedy
            assert generated == metrics.generated_tokens.value
            assert generated - (3 + 2 + 1) == metrics.inter_token_latency.snapshot()[0][-1][1]
            assert generated == metrics.request_output_tokens.snapshot()[1]
            assert 3 == metrics.time_to_first_token.snapshot()[0][-1][1]
            assert 0 == metrics.wasted_tokens.value

    asyncio.run(run())


def test_what_cannot_be_is_refused_by_name(tiny_repository):
    """More beams than a lane has slots, or than the candidates decide; more outputs than beams; odd numbers."""

    async def refusal(model, decoding):
        with pytest.raises(InvalidRequest) as refused:
            await ask(model, text="the dog", decoding=decoding)
        return refused.value.field, refused.value.message

    async def run():
        directory = tiny_repository / "tiny-translate" / "1"
        for slots, lanes, most in ((7, 2, 3), (64, 1, 15)):
            async with Loaded(directory, slots=slots, lanes=lanes) as model:
                assert 16 == candidates_of(model.manifest)
                field = "decoding.beams.num_beams"
                for number in (0, most + 1):
                    assert (field, f"{field} must be 1..{most}, not {number}") == await refusal(model, searched(number))
                assert (await ask(model, text="the dog", decoding=searched(most))).completion.text
        async with Loaded(directory, slots=8, lanes=1) as model:
            field = "decoding.num_outputs"
            why = f"{field} must be 1..3, as decoding.beams.num_beams says, not 4"
            assert (field, why) == await refusal(model, searched(3, num_outputs=4))
            for penalty in (10.5, -11, float("nan"), float("inf")):
                field, _ = await refusal(model, searched(3, length_penalty=penalty))
                assert "decoding.beams.length_penalty" == field
            field, _ = await refusal(model, searched(3, early_stopping=9))
            assert "decoding.beams.early_stopping" == field

    asyncio.run(run())


@pytest.mark.parametrize(
    "name",
    [
        "tiny-translate",
        "tiny-generate",
        "tiny-gpt",
        "tiny-window",
        "tiny-attention-rnn",
        "tiny-hybrid",
        "tiny-state-space",
    ],
)
def test_a_beams_past_is_what_its_tokens_make_it(tiny_repository, name):
    """However often a beam was copied: a row that is given its tokens has the same log-probabilities, bit for bit."""

    async def run():
        rng = random.Random(7)
        async with Loaded(tiny_repository / name / "1", slots=8, lanes=1) as model:
            for _ in range(4):
                ids = [rng.randrange(3, 14) for _ in range(rng.randrange(1, 9))]
                request = {"token_ids": common_pb2.TokenIds(ids=ids), "return_scores": True}
                decoding = searched(4, num_outputs=4, min_new_tokens=10, max_new_tokens=12)
                found = (await ask(model, **request, decoding=decoding)).completion
                for output in (found, *found.others):
                    tokens, log_probs = list(output.token_ids[:-1]), list(output.token_log_probs[:-1])
                    decoding = common_pb2.Decoding(prefix={"token_ids": {"ids": tokens}}, max_new_tokens=12)
                    given = (await ask(model, **request, decoding=decoding)).completion
                    assert tokens == list(given.token_ids[: len(tokens)])
                    assert log_probs == list(given.token_log_probs[: len(tokens)])

    asyncio.run(run())


def test_a_crowd_of_all_kinds_is_bit_identical_to_each_alone(tiny_repository):
    """Searches of several widths, draws, alternatives and greedy rows in one lane, over a cache of keys and values."""

    async def run(name):
        rng = random.Random(3)
        asked = []
        for index in range(40):
            decoding = rng.choice(
                [
                    common_pb2.Decoding(),
                    searched(rng.choice([2, 4, 8]), num_outputs=2, min_new_tokens=rng.choice([0, 3])),
                    common_pb2.Decoding(sampling={"seed": index}, num_outputs=rng.choice([1, 3])),
                    common_pb2.Decoding(alternatives={}, num_outputs=3),
                ]
            )
            decoding.max_new_tokens = rng.randrange(3, 12)
            text = " ".join(rng.choices(["the", "dog", "cat", "eats", "big", "a", "two"], k=rng.randrange(1, 6)))
            asked.append({"text": text, "decoding": decoding, "return_scores": True})
        async with Loaded(tiny_repository / name / "1", slots=11, lanes=1) as model:
            together = await asyncio.gather(*(ask(model, **request) for request in asked))
            alone = [await ask(model, **request) for request in asked]
        assert [plain(one.completion) for one in alone] == [plain(one.completion) for one in together]

    for name in ("tiny-translate", "tiny-gpt"):
        asyncio.run(run(name))
