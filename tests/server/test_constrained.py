"""Laws of constrained answers of whole models: what ends parses, in any batch the same, and errs alone."""

import asyncio
import contextlib
import gc
import importlib.util
import json
import random
import re
import time

import grpc
import pytest

from json_texts import fits
from loaded import Loaded, ask
from weft_proto.v1 import common_pb2
from weft_server.errors import DeadlineExpired, InvalidRequest, RequestError
from weft_server.logits_processors import constraint as constraint_module
from weft_server.logits_processors.constraint import Following
from weft_server.transport.status import to_status

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "b"]}}, "required": ["a"], "additionalProperties": False}
REGEX = "[a-c]{1,4}(é|!)?"
TEXTS = ["a", "abc", "no", "ñ!", "never"]
LETTERS = [
    (common_pb2.Constraint(json_schema=json.dumps(SCHEMA)), lambda text: fits(json.loads(text), SCHEMA)),
    (common_pb2.Constraint(regex=REGEX), lambda text: re.fullmatch(REGEX, text)),
    (common_pb2.Constraint(choice=common_pb2.Choice(texts=TEXTS)), lambda text: text in TEXTS),
    (common_pb2.Constraint(lark='start: "a" start | "b"'), lambda text: re.fullmatch("a*b", text)),
]
# Of a model whose tokens are whole words.
SENTENCES = ["el gato", "la casa grande", "un gato come", "no"]
WORDS = [
    (common_pb2.Constraint(regex="(el|la) (gato|casa)( come)*"), lambda text: re.fullmatch(WORDS[0][0].regex, text)),
    (common_pb2.Constraint(choice=common_pb2.Choice(texts=SENTENCES)), lambda text: text in SENTENCES),
    (
        common_pb2.Constraint(lark='start: "el" (" gato" | " come")* | start " y " start'),
        lambda text: re.fullmatch("el( gato| come)*( y el( gato| come)*)*", text),
    ),
]
STRATEGIES = [
    {"greedy": common_pb2.Greedy()},
    {"sampling": common_pb2.Sampling(seed=1)},
    {"sampling": common_pb2.Sampling(seed=2, temperature=2.0, top_k=50, top_p=0.9)},
    {"beams": common_pb2.Beams(num_beams=3), "num_outputs": 3},
    {"sampling": common_pb2.Sampling(seed=3), "num_outputs": 2},
]
MODELS = {"tiny-generate": LETTERS, "tiny-window": LETTERS, "tiny-translate": WORDS, "tiny-rnn": WORDS}


def requests(count, constraints):
    """Requests with every kind of constraint and strategy, some without a constraint."""
    rng, asked = random.Random(7), []
    for index in range(count):
        ids = [rng.randrange(4, 20) for _ in range(rng.randrange(1, 12))]
        decoding = common_pb2.Decoding(max_new_tokens=24, **STRATEGIES[index % len(STRATEGIES)])
        constraint, parses = constraints[index % len(constraints)] if index % 7 else (None, None)
        if constraint:
            decoding.constraint.CopyFrom(constraint)
        asked.append(({"token_ids": common_pb2.TokenIds(ids=ids), "decoding": decoding}, parses))
    return asked


@pytest.mark.parametrize("name", MODELS)
def test_answers_that_end_parse_and_are_the_same_in_any_batch(tiny_repository, name):
    """Alone or in a crowd, answers have the same tokens. All that end parse, and each kind of constraint is met."""

    async def run():
        async with Loaded(tiny_repository / name / "1", lanes=2, slots=8) as model:
            asked = requests(140, MODELS[name])
            alone = [(await ask(model, **request)).completion for request, _ in asked]
            crowd = await asyncio.gather(*(ask(model, **request) for request, _ in asked))
            met = set()
            for (request, parses), one, other in zip(asked, alone, crowd, strict=True):
                assert one.token_ids == other.completion.token_ids
                assert one.others == other.completion.others
                assert request["decoding"].constraint == one.decoding.constraint
                for answer in (one, *one.others):
                    if parses and answer.finish_reason == common_pb2.FINISH_REASON_STOP:
                        assert parses(answer.text), answer.text
                        asked_by = request["decoding"]
                        met.add((asked_by.constraint.WhichOneof("kind"), asked_by.WhichOneof("strategy")))
            kinds = {constraint.WhichOneof("kind") for constraint, _ in MODELS[name]}
            # A search may prefer white space to the end of JSON.
            wanted = {(kind, strategy) for kind in kinds for strategy in ("greedy", "sampling", "beams")}
            assert wanted - {("json_schema", "beams")} <= met

    asyncio.run(run())


async def refused(model, **decoding):
    """The error that a request gets, whose other fields are fine."""
    asked = {"max_new_tokens": 24} | decoding
    with pytest.raises(RequestError) as caught:
        await ask(model, token_ids=common_pb2.TokenIds(ids=[5, 6]), decoding=common_pb2.Decoding(**asked))
    return caught.value


BAD = [
    ({"json_schema": "{"}, "json_schema"),
    ({"json_schema": '{"type": NaN}'}, "json_schema"),
    ({"json_schema": '{"type": "strin"}'}, "json_schema"),
    ({"json_schema": '{"$ref": "http://127.0.0.1:1/a"}'}, "json_schema"),
    ({"json_schema": '{"uniqueItems": true, "x-guidance": {"lenient": true}}'}, "json_schema"),
    ({"json_schema": '{"type": "array", "uniqueItems": true}'}, "json_schema"),
    ({"json_schema": " " * 65_537}, "json_schema"),
    ({"regex": "("}, "regex"),
    ({"regex": "(?=a)"}, "regex"),
    ({"regex": r"(?-u:\xff)"}, "regex"),
    ({"regex": "[^\\s\\S]"}, "regex"),
    ({"regex": "a" * 65_537}, "regex"),
    ({"lark": "start: nobody"}, "lark"),
    ({"lark": ""}, "lark"),
    ({"lark": "start: /a/\x00\x1b[31m \u202e"}, "lark"),
    ({"lark": "start: T\nT: ~/a/"}, "lark"),
    ({"lark": '%llguidance {"allow_invalid_utf8": true}\nstart: /a/'}, "lark"),
    ({"lark": "start: <|end|>"}, "lark"),
    ({"choice": common_pb2.Choice()}, "choice.texts"),
    ({"choice": common_pb2.Choice(texts=["a", ""])}, "choice.texts[1]"),
    ({"choice": common_pb2.Choice(texts=["a", "b", "a"])}, "choice.texts"),
    ({"choice": common_pb2.Choice(texts=["a" * 1025])}, "choice.texts[0]"),
    ({"choice": common_pb2.Choice(texts=[str(i) for i in range(1025)])}, "choice.texts"),
    ({"choice": common_pb2.Choice(texts=[f"{i:0>1000}" for i in range(66)])}, "choice.texts"),
]


def test_what_cannot_be_read_is_the_callers_fault(tiny_repository):
    """INVALID_ARGUMENT naming the field, in printable words of one line, and the next request is answered."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            for constraint, field in BAD:
                error = await refused(model, constraint=common_pb2.Constraint(**constraint))
                assert f"decoding.constraint.{field}" == error.field, constraint
                assert error.message.isprintable()
                assert len(error.message) < 256
                assert grpc.StatusCode.INVALID_ARGUMENT == to_status(error).code
                if field in ("json_schema", "regex", "lark"):
                    assert "CONSTRAINT_REFUSED" == error.reason
            error = await refused(model, constraint=common_pb2.Constraint())
            assert "decoding.constraint" == error.field

    asyncio.run(run())


def test_a_way_without_end_is_the_callers_fault(tiny_repository):
    """A word that the model cannot say refuses the request, before its answer or within. A neighbour notices none."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            plain = {"token_ids": common_pb2.TokenIds(ids=[5, 6]), "decoding": common_pb2.Decoding(max_new_tokens=20)}
            alone = (await ask(model, **plain)).completion.token_ids
            for regex in ("xylophone", "el xylophone", "el gatos?x"):
                beside = asyncio.create_task(ask(model, **plain))
                error = await refused(model, constraint=common_pb2.Constraint(regex=regex))
                assert ("CONSTRAINT_REFUSED", "decoding.constraint.regex") == (error.reason, error.field)
                assert alone == (await beside).completion.token_ids

    asyncio.run(run())


def test_what_takes_too_much_to_follow_ends_the_request_alone(tiny_repository):
    """A parser that gives up in the middle of an answer refuses it. A neighbour's answer stays what it is."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            plain = {"token_ids": common_pb2.TokenIds(ids=[5, 6]), "decoding": common_pb2.Decoding(max_new_tokens=20)}
            alone = (await ask(model, **plain)).completion.token_ids
            beside = asyncio.create_task(ask(model, **plain))
            heavy = common_pb2.Constraint(regex="([a-z]{1,300} ?){100,300}")
            drawn = common_pb2.Sampling(seed=1, temperature=9)
            error = await refused(model, constraint=heavy, max_new_tokens=60, sampling=drawn)
            assert ("CONSTRAINT_REFUSED", "decoding.constraint.regex") == (error.reason, error.field)
            assert alone == (await beside).completion.token_ids

    asyncio.run(run())


def test_slow_steps_add_up_over_a_requests_rows(tiny_repository, monkeypatch):
    """Each is within its own bounds, and together they are not: the request ends. A neighbour's answer is the same."""
    monkeypatch.setattr(constraint_module, "START_S", constraint_module.START_S / 10)  # a fast machine has them too
    monkeypatch.setattr(constraint_module, "TOKEN_S", constraint_module.TOKEN_S / 10)

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            plain = {"token_ids": common_pb2.TokenIds(ids=[5, 6]), "decoding": common_pb2.Decoding(max_new_tokens=12)}
            alone = (await ask(model, **plain)).completion.token_ids
            lark = 'start: (("a" x){1,1000} | x{4,1000}){1,1000}\nx: "b"?'
            drawn = common_pb2.Sampling(seed=1)
            asked = {"constraint": common_pb2.Constraint(lark=lark), "sampling": drawn, "num_outputs": 7}
            error, beside = await asyncio.gather(
                refused(model, max_new_tokens=40, min_new_tokens=30, **asked), ask(model, **plain)
            )
            assert ("CONSTRAINT_REFUSED", "decoding.constraint.lark") == (error.reason, error.field)
            assert "it takes more to follow than the server allows" in error.message
            assert alone == beside.completion.token_ids

    asyncio.run(run())


def test_fields_that_contradict_a_constraint(tiny_repository):
    """They are named: a prefix that breaks it, a forced token that does, stop tokens that are text."""
    asked = common_pb2.Constraint(choice=common_pb2.Choice(texts=["abc", "abd"]))

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            (text_id,) = model.target_tokenizer.encode("x")[:1]
            cases = {
                "decoding.prefix": {"prefix": common_pb2.Phrase(text="abx")},
                "decoding.forced_first_id": {"forced_first_id": text_id},
                "decoding.forced_last_id": {"forced_last_id": text_id},
                "decoding.stop_token_ids": {"stop_token_ids": common_pb2.TokenSet(ids=[text_id])},
            }
            for field, more in cases.items():
                error = await refused(model, constraint=asked, **more)
                assert field == error.field
                assert "decoding.constraint" in error.message
            decoding = common_pb2.Decoding(max_new_tokens=9, constraint=asked, prefix=common_pb2.Phrase(text="ab"))
            answer = await ask(model, token_ids=common_pb2.TokenIds(ids=[5]), decoding=decoding)
            assert answer.completion.text in ("abc", "abd")

    asyncio.run(run())


def test_the_end_comes_where_nothing_else_fits(tiny_repository):
    """Whatever min_new_tokens says. Until then it keeps the end away, and a stop string ends where it comes."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            ids = common_pb2.TokenIds(ids=[5, 6])

            async def answer(regex, **more):
                constraint = common_pb2.Constraint(regex=regex)
                decoding = common_pb2.Decoding(max_new_tokens=20, constraint=constraint, **more)
                return (await ask(model, token_ids=ids, decoding=decoding)).completion

            must_end = await answer("abc", min_new_tokens=15)
            assert ("abc", common_pb2.FINISH_REASON_STOP) == (must_end.text, must_end.finish_reason)
            may_end = await answer("[ab]*", min_new_tokens=15)
            assert 15 <= len(may_end.token_ids) - (may_end.finish_reason == common_pb2.FINISH_REASON_STOP)
            stopped = await answer("a+bc", stop=["b"])
            assert re.fullmatch("a+", stopped.text)
            cut = await answer("[ab]{300}")
            assert common_pb2.FINISH_REASON_LENGTH == cut.finish_reason
            assert re.fullmatch("[ab]+", cut.text)
            empty = await answer("")
            assert ("", common_pb2.FINISH_REASON_STOP) == (empty.text, empty.finish_reason)

    asyncio.run(run())


STRATEGIES_OF_ENDS = [
    {"greedy": common_pb2.Greedy()},
    {"beams": common_pb2.Beams(num_beams=3)},
    {"beams": common_pb2.Beams(num_beams=2, early_stopping=common_pb2.EARLY_STOPPING_NEVER), "num_outputs": 2},
]


@pytest.mark.parametrize("strategy", STRATEGIES_OF_ENDS, ids=["greedy", "beams", "two of beams"])
def test_an_answer_ends_where_nothing_is_left_whatever_chooses(tiny_repository, strategy):
    """A search has the end too, with the model's own log-probability: no other field refuses the request."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            vocab = model.manifest.text.target_vocab_size
            prompt = {"token_ids": common_pb2.TokenIds(ids=[5, 6]), "return_scores": True}

            async def answers(**more):
                decoding = common_pb2.Decoding(max_new_tokens=20, **more, **strategy)
                best = (await ask(model, **prompt, decoding=decoding)).completion
                return [best, *best.others]

            yes = common_pb2.Constraint(choice=common_pb2.Choice(texts=["yes"]))
            for whole in (
                await answers(constraint=yes, min_new_tokens=10),
                await answers(suppressed=common_pb2.TokenSet(ids=range(vocab))),
                await answers(constraint=yes, suppressed=_ends(model)),
            ):
                assert {common_pb2.FINISH_REASON_STOP} == {each.finish_reason for each in whole}
                assert set(whole[0].token_ids[-1:]) <= set(model.manifest.text.end_ids)
                if whole[0].HasField("score"):
                    assert pytest.approx(sum(whole[0].token_log_probs) / len(whole[0].token_ids)) == whole[0].score
            assert {"yes"} == {each.text for each in await answers(constraint=yes, min_new_tokens=10)}
            assert [""] == [each.text for each in await answers(suppressed=common_pb2.TokenSet(ids=range(vocab)))]

    asyncio.run(run())


def _ends(model):
    return common_pb2.TokenSet(ids=model.manifest.text.end_ids)


@pytest.mark.parametrize("strategy", STRATEGIES_OF_ENDS, ids=["greedy", "beams", "two of beams"])
def test_a_dead_end_of_other_fields_is_not_blamed_on_the_models_tokens(tiny_repository, strategy):
    """Tokens fit the constraint, and something else bars all of them."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            texts = [model.target_tokenizer.decode([id_]) for id_ in range(model.manifest.text.target_vocab_size)]
            barred = common_pb2.TokenSet(ids=[id_ for id_, text in enumerate(texts) if "b" in text])
            error = await refused(model, constraint=common_pb2.Constraint(regex="a{3}b"), suppressed=barred, **strategy)
            assert ("decoding.constraint.regex", "CONSTRAINT_REFUSED") == (error.field, error.reason)
            assert "other fields of decoding bar all tokens that fit" in error.message

    asyncio.run(run())


def test_split_sentences_take_no_constraint(tiny_repository):
    """Each sentence would be one answer, and the whole would be none."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1") as model:
            decoding = common_pb2.Decoding(constraint=WORDS[0][0])
            with pytest.raises(InvalidRequest) as caught:
                await ask(model, text="the cat", split_sentences=True, decoding=decoding)
            assert "decoding.constraint" == caught.value.field

    asyncio.run(run())


def test_a_server_without_the_extra_says_so(tiny_repository, monkeypatch):
    """FAILED_PRECONDITION naming the extra; Model.takes_constraints is false. Everything else is answered."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            assert model.grammars.takes_constraints
            monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
            assert not model.grammars.takes_constraints
            error = await refused(model, constraint=LETTERS[0][0])
            assert "weft-serving[constraints]" in error.message
            assert ("CANNOT_CONSTRAIN", "decoding.constraint") == (error.reason, error.field)
            assert grpc.StatusCode.FAILED_PRECONDITION == to_status(error).code
            assert (await ask(model, token_ids=common_pb2.TokenIds(ids=[5]))).completion.token_ids

    asyncio.run(run())


SLOW = common_pb2.Decoding(max_new_tokens=4, constraint=common_pb2.Constraint(regex="a?" * 4000 + "a" * 4000))


async def begun(model, count):
    """Tasks that ask for a constraint that takes long to build. Their builds wait."""
    ids = common_pb2.TokenIds(ids=[5])
    tasks = [asyncio.create_task(ask(model, token_ids=ids, decoding=SLOW)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_a_text_waits_for_no_constraint(tiny_repository):
    """Its tokens are there before the second of eight constraints is built, and the answer is."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            tasks = await begun(model, 8)
            banned = [common_pb2.Phrase(text="no")]
            for more in ({}, {"banned": banned}):
                await ask(model, text="a", decoding=common_pb2.Decoding(max_new_tokens=4, **more))
            assert sum(task.done() for task in tasks) <= 1
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert {"CONSTRAINT_REFUSED"} == {error.reason for error in ended}

    asyncio.run(run())


def test_the_constraints_that_wait_are_bounded(tiny_repository):
    """A quarter of the requests that may wait. One more is refused, and who has left is none of them."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", max_queued_requests=12) as model:
            tasks = await begun(model, 3)
            error = await refused(model, constraint=common_pb2.Constraint(regex="a"))
            assert "QUEUE_FULL" == error.reason
            assert grpc.StatusCode.RESOURCE_EXHAUSTED == to_status(error).code
            assert (await ask(model, text="a")).completion.token_ids
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            decoding = common_pb2.Decoding(constraint=common_pb2.Constraint(regex="ab"))
            assert "ab" == (await ask(model, token_ids=common_pb2.TokenIds(ids=[5]), decoding=decoding)).completion.text

    asyncio.run(run())


def test_a_constraint_that_nobody_waits_for_is_not_built(tiny_repository, monkeypatch):
    """Who leaves before a build begins takes it along, and whose deadline passes is told."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            built, build = [], model.grammars.build
            monkeypatch.setattr(model.grammars, "build", lambda *args, **more: built.append(1) or build(*args, **more))
            first, second = await begun(model, 2)
            second.cancel()
            with pytest.raises(DeadlineExpired):
                await model.building.do(lambda _: built.append(2), time.monotonic() + 0.001)
            await asyncio.gather(first, second, return_exceptions=True)
            assert [1] == built

    asyncio.run(run())


def test_who_leaves_frees_all(tiny_repository):
    """Cancelled in the middle, a request leaves no matcher behind and no job, and the next one is answered."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", lanes=1) as model:
            for seconds in (0.001, 0.005, 0.01, 0.02, 0.03, 0.05):
                decoding = common_pb2.Decoding(max_new_tokens=60, constraint=common_pb2.Constraint(regex="[ab]{400}"))
                asked = ask(model, token_ids=common_pb2.TokenIds(ids=[5]), decoding=decoding)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asked, seconds)
            decoding = common_pb2.Decoding(constraint=common_pb2.Constraint(regex="ab"))
            assert "ab" == (await ask(model, token_ids=common_pb2.TokenIds(ids=[5]), decoding=decoding)).completion.text
            gc.collect()
            assert [] == [each for each in gc.get_objects() if type(each) is Following]

    asyncio.run(run())
