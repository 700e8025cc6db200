"""Laws of sequences that hold several slots: all or nothing, each row as if it were alone, and all free at the end."""

import asyncio
import random
import time

import numpy as np
import pytest

from loaded import Loaded, ask
from rows_of_logits import candidates_of
from running import Running, best, rows_of
from toy import START, Toy
from waiting import until
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.config import read_config
from weft_server.engine.lane import Intake
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import DeadlineExpired, InvalidRequest, LaneFailed
from weft_server.loading.build import _share
from weft_server.runtime.device import HOST
from weft_server.runtime.session import Session
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Cancelled, Decoding, FinishReason, Sequence
from weft_server.source import Ids


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The toy, and a session of its decoder."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    return toy, Session(toy.path, 1)


@pytest.fixture(scope="module", params=[False, True], ids=["recurrent", "recurrent and memory"])
def toy(tmp_path_factory, request):
    """The toy and its two sessions."""
    toy = Toy(tmp_path_factory.mktemp("toy"), attends=request.param)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
    return toy


def draws(num_outputs, max_new=24, *, seed=0):
    """A decoding of several draws."""
    return Decoding(max_new, sampling=Sampling(1.0, 0, 1.0, seed), num_outputs=num_outputs)


def wide(name, width, max_new=24):
    """A sequence of several rows, with a prompt of three tokens."""
    return Sequence(name, Ids(np.arange(3)), draws(width, max_new))


def outputs_of(rows):
    """What there is to hand over: (who, tokens of each answer, slots freed)."""
    return [
        (one.sequence.request_id, [each.token_ids for each in one.outputs or ()], one.num_freed)
        for one in rows.hand_over()
    ]


def test_each_row_ends_by_itself_and_the_sequence_with_the_last(opened):
    """Its slot is free at once; the answers come together, in the order of the rows."""
    rows, three = rows_of(opened), wide("three", 3, 4)
    rows.slots.sampling.temperature[:] = 0
    rows.begin(three, START)
    rows.slots.sampling.temperature[:] = 0  # so that `best` says which token comes

    rows.advance(best(5, 2, 6))
    assert [("three", [], 1)] == outputs_of(rows)
    assert (2, 2) == (rows.num_held, three.num_slots)
    rows.advance(best(7, 8))
    rows.advance(best(2, 9))
    assert [("three", [], 1)] == outputs_of(rows)
    rows.advance(best(3))
    assert [("three", [[5, 7, 2], [2], [6, 8, 9, 3]], 1)] == outputs_of(rows)
    assert (0, 0, None, 8) == (rows.num_held, three.num_slots, three.slot, three.num_output_tokens)


@pytest.mark.parametrize("how", ["dropped", "late", "failed"])
def test_all_slots_of_a_group_are_free_at_once(opened, how):
    """Cancelled, late or failed it ends exactly once, in one step, and others keep their rows."""
    rows, group = rows_of(opened), wide("group", 3)
    for one in (wide("before", 1), group, wide("behind", 2)):
        rows.begin(one, START)
    rows.slots.sampling.temperature[:] = 0
    rows.slots.output_ids[:, 0] = range(6)
    if how == "late":
        rows.slots.deadline[1:4] = 0.0
    rows.advance(best(5, 6, 2, 8, 9, 10) if how == "late" else best(5, 6, 7, 8, 9, 10))
    if how == "dropped":
        rows.drop(group, Cancelled())
        rows.drop(group, Cancelled())
    elif how == "failed":
        rows.fail(lambda: LaneFailed("STEP_FAILED", "broken"))

    ends = {one.sequence.request_id: one for one in rows.hand_over() if one.outcome is not None}
    assert {"dropped": Cancelled, "late": DeadlineExpired, "failed": LaneFailed}[how] is type(ends["group"].outcome)
    assert (0, 3) == (group.num_slots, group.num_output_tokens)
    assert 3 == ends["group"].num_freed + (how == "late")
    if how == "failed":
        assert 3 == len(ends)
        assert 0 == rows.num_held
    else:
        assert ["group"] == list(ends)
        rows.slots.check_integrity()
        held = {sequence.request_id for sequence in rows.slots.sequences[:3]}
        assert ({"before", "behind"}, 3) == (held, rows.num_held)


def test_a_prompt_holds_the_slots_of_its_rows_from_its_beginning(opened):
    """They stay behind the rows when one of these ends, and become rows at the prompt's end."""
    rows, prompt = rows_of(opened), wide("prompt", 3)
    rows.begin(wide("row", 1, 2), START)
    rows.begin_prompt(prompt)
    assert 4 == rows.num_held
    rows.slots.sampling.temperature[:] = 0
    rows.advance(best(2))
    assert (3, prompt.slot) == (rows.num_held, 0)
    rows.end_prompt()
    rows.slots.sampling.temperature[:] = 0
    rows.start(best(5))
    assert [[5, 0]] * 3 == rows.slots.output_ids[:3, :2].tolist()
    rows.begin_prompt(wide("other", 2))
    rows.drop(prompt, Cancelled())
    assert (2, rows.prompt.slot) == (rows.num_held, 0)


def test_a_wide_sequence_waits_at_the_head_until_it_fits():
    """Nobody overtakes it, however narrow, and a lane takes no more than it has room for."""
    scheduler = Scheduler(1, 99, 1000)
    for width in (2, 4, 1, 1):
        scheduler.reserve()
        scheduler.enqueue(wide(f"{width}", width))
    assert ["2"] == [one.request_id for one in scheduler.take(0, Intake(9, 1000, room=5))]
    assert [] == scheduler.take(0, Intake(9, 1000, room=3))
    assert ["4"] == [one.request_id for one in scheduler.take(0, Intake(9, 1000, room=4))]
    assert [6] == scheduler.loads
    scheduler.free(0, 2)
    assert ["1", "1"] == [one.request_id for one in scheduler.take(0, Intake(9, 1000, room=2))]
    assert [6] == scheduler.loads


def test_lanes_share_by_slots():
    """A lane that holds a wide sequence holds as much as one with so many narrow ones."""
    scheduler = Scheduler(2, 99, 1000)
    for width in (4, 1, 1, 1, 1):
        scheduler.reserve()
        scheduler.enqueue(wide("w", width))
    assert 1 == len(scheduler.take(0, Intake(most=8, room=8, budget=1000)))
    assert 4 == len(scheduler.take(1, Intake(most=8, room=8, budget=1000)))
    assert [4, 4] == scheduler.loads


@pytest.mark.parametrize(("decoding", "lanes"), [({}, 4), ({"beams": {"num_beams": 4}}, 2), ({"beams": {}}, 2)])
def test_lanes_are_as_wide_as_what_an_empty_request_asks_for(decoding, lanes):
    """A model whose own default searches has fewer lanes where narrower ones could not hold a search."""
    decoding = common_pb2.Decoding(max_new_tokens=4, **decoding)
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSLATE, decoding=decoding)
    assert lanes == _share(manifest, read_config(repository=".", slots=8, lanes=4), HOST)[0]


def test_draws_are_those_of_single_requests_in_any_crowd(toy):
    """Output i is what the seed `seed + i` gives alone, tokens and log-probabilities, whoever else is there."""

    async def run():
        rng = random.Random(1)
        async with Running(toy, num_slots=6, num_lanes=2) as running:
            asked = []
            for index in range(60):
                source = [rng.randrange(3, 50) for _ in range(rng.randrange(1, 9))]
                width, seed = rng.choice([1, 2, 3, 6]), rng.choice([index * 100, 2**64 - 2])
                prefix = tuple(rng.randrange(50) for _ in range(rng.choice([0, 2])))
                group = running.submit(source, draws(width, seed=seed), prefix_ids=prefix)
                seeds = [(seed + rank) % 2**64 for rank in range(width)]
                alone = [running.submit(source, draws(1, seed=each), prefix_ids=prefix) for each in seeds]
                asked.append((group, alone))
            for group, alone in asked:
                await group.reply.done()
                for each in alone:
                    await each.reply.done()
                outputs = group.reply.outputs or [group.reply]
                assert len(alone) == len(outputs)
                for one, other in zip(outputs, alone, strict=True):
                    assert (other.reply.token_ids, other.reply.log_probs) == (one.token_ids, one.log_probs)
                assert group.num_output_tokens == sum(len(one.token_ids) for one in outputs)

    asyncio.run(run())


def test_groups_that_go_leave_nothing_behind(toy):
    """Cancelled at any moment, late, or as wide as the lane: every slot comes back, and the rest are answered."""

    async def run():
        rng = random.Random(2)
        async with Running(toy, num_slots=4, num_lanes=2) as running:
            kept = []
            for index in range(80):
                deadline = time.monotonic() + rng.random() * 0.01 if rng.random() < 0.2 else np.inf
                width = rng.choice([1, 2, 4])
                decoding = draws(width, seed=index) if rng.random() < 0.5 else Decoding(24, beams=Beams(width))
                sequence = running.submit([5, 6], decoding, deadline=deadline)
                if rng.random() < 0.4:
                    await asyncio.sleep(rng.random() * 0.003)
                    running.engine.cancel(sequence)
                elif deadline == np.inf:
                    kept.append(sequence)
            for sequence in kept:
                assert isinstance(await sequence.reply.done(), FinishReason)
            await until(lambda: not running.engine.stats().running)
            assert [0, 0] == running.scheduler.loads

    asyncio.run(run())


def test_a_failed_step_ends_whole_groups_and_leaves_no_search_behind(toy):
    """Each sequence ends once, with an error of its own; the lane then searches as before."""

    async def run():
        async with Running(toy, num_slots=8, num_lanes=1) as running:
            search = Decoding(9, 9, beams=Beams(4))
            expected = await answer(running, search)
            decode, num_runs = running.runners[0].decode, 0

            def breaks(num_rows):
                nonlocal num_runs
                num_runs += 1
                if num_runs == 3:
                    raise RuntimeError("broken")
                return decode(num_rows)

            running.runners[0].decode = breaks
            both = [running.submit([5, 6], search), running.submit([7], draws(4))]
            for sequence in both:
                with pytest.raises(LaneFailed):
                    await sequence.reply.done()
            assert expected == await answer(running, search)

    async def answer(running, decoding):
        sequence = running.submit([5, 6], decoding)
        await sequence.reply.done()
        return sequence.reply.outputs

    asyncio.run(run())


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-gpt", "tiny-translate", "tiny-t5", "tiny-attention-rnn"])
def test_outputs_of_a_model_share_its_prompt(tiny_repository, name):
    """Draws are those of single requests; alternatives begin with the best first tokens and go on as greedy does."""
    directory = tiny_repository / name / "1"

    async def run():
        async with Loaded(directory, slots=8, lanes=1) as model:
            text = model.manifest.golden.text
            common = {"text": text, "return_scores": True}

            async def answer(**decoding):
                return (
                    await ask(model, **common, decoding=common_pb2.Decoding(max_new_tokens=8, **decoding))
                ).completion

            several, greedy, *alone = await asyncio.gather(
                answer(sampling=common_pb2.Sampling(seed=7), num_outputs=3),
                answer(),
                *(answer(sampling=common_pb2.Sampling(seed=7 + rank)) for rank in range(3)),
            )
            for one, other in zip([several, *several.others], alone, strict=True):
                assert (other.text, other.token_ids, other.token_log_probs) == (
                    one.text,
                    one.token_ids,
                    one.token_log_probs,
                )
                assert (other.finish_reason, other.tokens) == (one.finish_reason, one.tokens)
            assert sum(len(one.token_ids) for one in alone) == several.usage.output_tokens
            assert 3 == several.decoding.num_outputs

            first = await answer(alternatives=common_pb2.Alternatives(), num_outputs=4)
            assert greedy.token_ids == first.token_ids
            begins = [one.token_log_probs[0] for one in (first, *first.others)]
            assert sorted(begins, reverse=True) == begins
            assert 4 == len({one.token_ids[0] for one in (first, *first.others)})
            assert first.decoding.HasField("alternatives")

    asyncio.run(run())


@pytest.mark.parametrize("max_new", [1, 3])
def test_there_are_no_more_alternatives_than_tokens_that_may_come(tiny_repository, max_new):
    """Fewer answers come, best first, each with a token that may come. Rows that find none free their slots."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=8, lanes=1) as model:
            vocab = model.manifest.text.target_vocab_size
            prompt = {"token_ids": common_pb2.TokenIds(ids=[5, 6]), "return_scores": True, "num_top_tokens": 2}

            async def answers(**asked):
                asked = {"max_new_tokens": max_new, "num_outputs": 4} | asked
                decoding = common_pb2.Decoding(alternatives=common_pb2.Alternatives(), **asked)
                best = (await ask(model, **prompt, decoding=decoding)).completion
                outputs = [best, *best.others]
                assert sum(len(one.token_ids) for one in outputs) == best.usage.output_tokens
                assert all(len(one.token_ids) == len(one.top_tokens) for one in outputs)
                return outputs

            def all_but(*ids):
                return common_pb2.TokenSet(ids=[id_ for id_ in range(vocab) if id_ not in ids])

            two, one, none, constrained, whole = await asyncio.gather(
                answers(suppressed=all_but(9, 10)),
                answers(suppressed_first=all_but(9)),
                answers(suppressed=all_but()),
                answers(constraint=common_pb2.Constraint(regex="[ab]")),
                answers(constraint=common_pb2.Constraint(choice=common_pb2.Choice(texts=["yes"])), num_outputs=3),
            )
            assert {9, 10} == {output.token_ids[0] for output in two}
            assert 2 == len(two)
            assert [9] == [output.token_ids[0] for output in one]
            assert [""] == [output.text for output in none]
            assert ["a", "b"] == sorted(output.text for output in constrained)
            assert ["yes"[:max_new]] == [output.text for output in whole]
            for outputs in (two, constrained):
                begins = [output.token_log_probs[0] for output in outputs]
                assert sorted(begins, reverse=True) == begins

    asyncio.run(run())


def test_what_contradicts_is_refused_by_name(tiny_repository):
    """Both fields are named."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4, lanes=1) as model:
            limits = model.widths
            assert 4 == limits.max_outputs
            sampling, alternatives = common_pb2.Sampling(seed=1), common_pb2.Alternatives()
            for decoding, sentence in [
                (
                    {"num_outputs": 2},
                    "decoding.num_outputs must be 1 with decoding.greedy, which has a single answer, not 2",
                ),
                ({"num_outputs": 0}, "decoding.num_outputs must be 1 with decoding.greedy"),
                ({"num_outputs": 5, "sampling": sampling}, "decoding.num_outputs must be 1..4, not 5"),
                ({"num_outputs": 0, "sampling": sampling}, "decoding.num_outputs must be 1..4, not 0"),
                ({"num_outputs": 5, "alternatives": alternatives}, "decoding.num_outputs must be 1..4, not 5"),
            ]:
                with pytest.raises(InvalidRequest) as refused:
                    await ask(model, text="dog", decoding=common_pb2.Decoding(**decoding))
                assert refused.value.message.startswith(sentence)
                assert "decoding.num_outputs" == refused.value.field
            decoding = common_pb2.Decoding(sampling=sampling, num_outputs=2)
            with pytest.raises(InvalidRequest, match="num_outputs must be 1, not 2, with split_sentences"):
                await ask(model, text="dog", split_sentences=True, decoding=decoding)

    asyncio.run(run())


def test_each_output_is_cut_at_its_first_stop_string(tiny_repository):
    """Its reason says so; others go on to their own end."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=8, lanes=1) as model:
            num_cut = 0
            for seed in range(8):
                asked = {"max_new_tokens": 20, "stop": ["e", "a"]}
                several = await ask(
                    model, text="def", decoding=common_pb2.Decoding(**asked, sampling={"seed": seed}, num_outputs=3)
                )
                for rank, one in enumerate([several.completion, *several.completion.others]):
                    decoding = common_pb2.Decoding(**asked, sampling={"seed": seed + rank})
                    alone = (await ask(model, text="def", decoding=decoding)).completion
                    assert (alone.text, alone.token_ids, alone.finish_reason) == (
                        one.text,
                        one.token_ids,
                        one.finish_reason,
                    )
                    num_cut += one.finish_reason == common_pb2.FINISH_REASON_STOP_STRING
            assert num_cut

    asyncio.run(run())


def search(name, max_new, num_top=0):
    """A search of four beams that wants the best tokens of each step."""
    return Sequence(name, Ids(np.arange(3)), Decoding(max_new, beams=Beams(4)), num_top_tokens=num_top)


def test_a_search_that_ends_at_once_has_no_parents_of_who_was_there_before(opened):
    """Its slots were others' beams, in rows that are no more."""
    rows, rng = rows_of(opened), np.random.default_rng(0)

    def step():
        logits = rng.normal(size=(rows.slots.num_running, 50)).astype(np.float32)
        logits[:, 2] = -20
        rows.advance(candidates_of(logits, 16))
        return {one.sequence.request_id: one.outcome for one in rows.hand_over()}

    for _ in range(20):
        for one in (wide("a", 1, 8), wide("b", 1, 8), search("moved", 5)):
            rows.begin(one, START)
        while rows.num_held:
            step()
        rows.begin(search("short", 1, num_top=2), START)
        assert {"short": FinishReason.LENGTH} == step()


def test_a_failed_step_leaves_nothing_for_the_next(opened):
    """A search that was done in the step that failed ends once, by the failure."""
    rows = rows_of(opened)
    rows.begin(search("search", 1), START)
    rows.hand_out = None  # fails behind the choice
    with pytest.raises(TypeError):
        rows.advance(candidates_of(np.zeros((4, 50), np.float32), 16))
    del rows.hand_out
    rows.fail(lambda: LaneFailed("STEP_FAILED", "broken"))
    assert ["search"] == [one.sequence.request_id for one in rows.hand_over()]
    rows.begin(wide("next", 1, 1), START)
    rows.advance(candidates_of(np.zeros((1, 50), np.float32), 16))

    assert ["next"] == [one.sequence.request_id for one in rows.hand_over()]


def test_answers_whose_tokens_are_all_forced_have_no_alternatives(tiny_repository):
    """One answer comes: others would be the same."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            prefix = common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=[5, 6]))
            for expected, asked in (
                (1, {"max_new_tokens": 1, "forced_last_id": 9}),
                (1, {"max_new_tokens": 2, "prefix": prefix}),
                (1, {"max_new_tokens": 3, "prefix": prefix, "forced_last_id": 9}),
                (4, {"max_new_tokens": 3, "prefix": prefix}),
                (4, {"max_new_tokens": 2, "forced_last_id": 9}),
            ):
                decoding = common_pb2.Decoding(alternatives={}, num_outputs=4, **asked)
                best = (await ask(model, text="def", decoding=decoding)).completion
                assert expected == 1 + len(best.others) == best.decoding.num_outputs
                assert asked["max_new_tokens"] >= len(best.token_ids)
                assert expected == len({tuple(one.token_ids) for one in (best, *best.others)})

    asyncio.run(run())


@pytest.mark.parametrize(("num_forced", "second"), [(0, 6), (1, 2)])
def test_an_alternative_may_end_where_the_least_length_is_reached(opened, num_forced, second):
    """Behind a prefix that is long enough, the end token is one of the best. Before, it must not come."""
    rows = rows_of(opened)
    forced = (9,) * num_forced
    decoding = Decoding(4, 1, alternatives=True, num_outputs=2, forced_ids=forced)
    rows.begin(Sequence("ways", Ids(np.arange(3)), decoding), START)
    logits = np.zeros((2, 50), np.float32)
    logits[:, [5, 2, 6]] = [3, 2, 1]
    for _ in range(num_forced + 1):
        rows.advance(candidates_of(logits[: rows.slots.num_running], 16))

    ids = {int(rows.slots.rank[slot]): rows.slots.output_ids[slot, num_forced] for slot in range(2)}
    assert {0: 5, 1: second} == ids


def test_more_alternatives_than_candidates_have_the_whole_row(opened):
    """The run is asked for all logits, whoever shares it."""
    rows = rows_of(opened)
    rows.begin(Sequence("ways", Ids(np.arange(3)), Decoding(4, alternatives=True, num_outputs=3)), START)

    assert rows.slots.reads_all[:3].all()


def test_who_is_lost_in_a_step_that_fails_is_ended(toy):
    """A row that was freed, but not yet handed over, is in no slot any more."""

    async def run():
        running = Running(toy, num_slots=4, num_lanes=1)
        rows = running.engine.lanes[0].rows

        def broken(*_, **__):
            del rows.deliver_outputs
            raise RuntimeError("broken copy")

        rows.deliver_outputs = broken
        async with running:
            lost = running.submit([5, 6], draws(2, 2))
            beside = running.submit([5, 7], Decoding(4))
            with pytest.raises(LaneFailed, match="a step of the model failed"):
                await asyncio.wait_for(lost.reply.done(), 20)
            await asyncio.wait_for(asyncio.gather(beside.reply.done(), return_exceptions=True), 20)
            after = running.submit([5, 6], Decoding(4))
            await asyncio.wait_for(after.reply.done(), 20)

    asyncio.run(run())
