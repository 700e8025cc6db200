"""Many inputs: in order, a few at a time, read as needed; failures stand in place, and a full server is waited for."""

import asyncio
import gc
import itertools
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from grpc import StatusCode

import weft
from fakes import EMPTY, Failure, fake_server
from waiting import until
from weft._status import Reach
from weft._window import Window
from weft_proto.v1.translation_pb2 import TranslateRequest

CHAT = [{"role": "user", "content": "a b"}]
# The verb, several inputs of it, and what says so of one.
VERBS = [
    ("translate", {"texts": ["a b", [5, 6], "c"]}, {"target_language": "es", "num_top_tokens": 1}),
    ("caption", {"images": [b"1", b"22", b"333"]}, {"return_scores": True}),
    ("answer", {"questions": [(b"1", "a b"), (b"22", [5, 6])]}, {"return_scores": True}),
    ("classify", {"texts": ["a", "b"]}, {"top_k": 1}),
    ("classify", {"images": [b"1", b"22"]}, {}),
    ("tag", {"texts": ["in LIMA", "x"]}, {"request_id": "r"}),
    ("extract", {"questions": [("a b", "c"), ("d", "e")]}, {"top_k": 2}),
    ("fill_mask", {"texts": ["a [MASK]", "[MASK]"]}, {"targets": ["x", "y"], "top_k": 1}),
    ("embed", {"texts": ["a b", "c"]}, {"dimensions": 3}),
    ("embed", {"images": [b"1", b"22"]}, {}),
    ("generate", {"prompts": ["a b", "c d"]}, {"decoding": weft.Decoding(max_new_tokens=3)}),
    ("generate", {"messages": [CHAT, CHAT * 2]}, {}),
    ("score", {"pairs": [("a b", "c d"), ([5], [6, 7, 8]), (b"22", "x")]}, {"model": "m", "num_top_tokens": 1}),
]
FULL = Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.05)


def blocking(target, verb, given, **options):
    """What the blocking client gives."""
    with weft.Client(target) as client:
        return list(getattr(client, f"{verb}_many")(**given, **options))


def in_a_loop(target, verb, given, **options):
    """What the asyncio client gives, for inputs of an async iterable."""

    async def one_by_one(inputs):
        for each in inputs:
            yield each

    async def run():
        async with weft.AsyncClient(target) as client:
            streams = {name: one_by_one(inputs) for name, inputs in given.items()}
            return [answer async for answer in getattr(client, f"{verb}_many")(**streams, **options)]

    return asyncio.run(run())


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_a_server_that_starts_is_waited_for(server, many):
    """Nothing is asked before it takes requests, and then all is answered."""
    server.set_health("accepting", serving=False)
    threading.Timer(2, server.set_health, ["accepting"], {"serving": True}).start()
    assert ["a", "b"] == texts(many(server.target, "translate", {"texts": ["a", "b"]}))
    assert 2 == len(server.servicer.seen)


def texts(answers):
    """Texts of answers, and reasons of errors."""
    return [each.reason if isinstance(each, weft.Error) else each.text for each in answers]


@pytest.mark.parametrize("many", [blocking, in_a_loop])
@pytest.mark.parametrize(("verb", "given", "options"), VERBS)
def test_many_are_answered_as_one_by_one(server, many, verb, given, options):
    """The answers are those of the verb for each input, in order."""
    (name, inputs), *_ = given.items()
    with weft.Client(server.target) as client:
        ask = getattr(client, verb)
        keyword = {
            ("classify", "images"): "image",
            ("embed", "images"): "images",
            ("generate", "messages"): "messages",
        }.get((verb, name))
        given_alone = [{keyword: each} if keyword else {} for each in inputs]
        expected = [
            ask(*(each if name in {"pairs", "questions"} else () if keyword else (each,)), **alone, **options)
            for each, alone in zip(inputs, given_alone, strict=True)
        ]

    assert expected == many(server.target, verb, given, **options)


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_many_pairs_of_texts_are_judged_as_one_by_one(server, many):
    """A question beside each passage. What is no pair stands in its place, and so does an empty text."""
    pairs = [("q", "one"), ["q", "two"], ("p", "three"), ("q", ""), ("q",), ("q", 5), "qa"]
    with weft.Client(server.target) as client:
        expected = [client.classify(text, text_pair=other) for text, other in pairs[:3]]
    found = many(server.target, "classify", {"pairs": pairs})
    assert expected == found[:3]
    assert ["EMPTY_INPUT", *["INVALID_FIELD"] * 3] == [each.reason for each in found[3:]]
    sent = sorted((seen.request.text, seen.request.text_pair) for seen in server.servicer.seen[3:])
    assert [("p", "three"), ("q", "one"), ("q", "two")] == sent


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_a_slow_answer_keeps_its_place(server, many):
    """The others are asked meanwhile, never more than `concurrency` at once, and wait for it."""
    inputs = [f"{number} a" for number in range(12)]
    server.servicer.by_text = dict.fromkeys(inputs, 0.1) | {"0 a": 1.0}

    assert [f"a {number}" for number in range(12)] == texts(
        many(server.target, "translate", {"texts": inputs}, concurrency=4)
    )
    assert 4 == server.servicer.most_waiting


def test_inputs_are_read_as_they_are_needed(server, client):
    """Of an endless iterator at most a few times `concurrency` are read ahead of the answer that is taken."""
    read = itertools.count(1)
    many = client.translate_many((f"a {number}" for number in read), concurrency=3)
    assert 1 == next(read)  # nothing was read yet
    server.servicer.by_text = {"a 2": 60.0}

    def answer_the_first():
        asyncio.run(until(lambda: len(server.servicer.seen) >= 4 * 3))
        time.sleep(0.05)  # in which no more may come
        (first,) = [seen for seen in server.servicer.seen if seen.request.text == "a 2"]
        first.cancelled.set()  # which ends its wait

    threading.Thread(target=answer_the_first, daemon=True).start()
    assert "2 a" == next(many).text
    assert 4 * 3 == len(server.servicer.seen)  # while the first was waited for
    assert 50 == len(list(itertools.islice(many, 50)))
    assert next(read) <= 51 + 4 * 3 + 2
    many.cancel()


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_a_failure_stands_in_its_place(server, many):
    """One of the server and one of our own; the rest is answered."""
    server.servicer.script.extend([0.0, Failure(StatusCode.INVALID_ARGUMENT, "INPUT_TOO_LONG")])
    found = many(server.target, "translate", {"texts": ["a", "b", "c", 5, "d"]}, concurrency=1)

    assert ["a", "INPUT_TOO_LONG", "c", "INVALID_FIELD", "d"] == texts(found)


def test_the_first_failure_can_end_it(server, client):
    """`or_raise` gives answers alone, raises the error, and cancels what is in flight."""
    server.servicer.by_text = {"b": Failure(StatusCode.INVALID_ARGUMENT, "BAD"), "c": 30.0}
    answers = client.translate_many(["a", "b", "c", "d"]).or_raise()
    assert "a" == next(answers).text
    with pytest.raises(weft.InvalidRequest):
        next(answers)

    assert [] == list(answers)
    assert all(seen.cancelled.wait(60) for seen in in_flight(server) if seen.request.text == "c")


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_what_is_no_pair_stands_in_its_place(server, many):
    """Two letters are none, nor is a source alone."""
    pairs = ["ab", ("a",), ("a", "b"), ("a", 5), 7]
    found = many(server.target, "score", {"pairs": pairs}, model="m")

    assert [True, True, False, True, True] == [isinstance(each, weft.InvalidRequest) for each in found]
    assert -0.5 == found[2].total
    assert "pairs: must each be a tuple of a source and a target" == found[0].message


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_an_error_of_the_inputs_comes_behind_the_answers(server, many):
    """What was read before it is answered."""

    def inputs():
        yield "a"
        yield "b"
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        many(server.target, "translate", {"texts": inputs()})
    with weft.Client(server.target) as client:
        answers = client.translate_many(inputs())
        assert ["a", "b"] == texts([next(answers), next(answers)])
        with pytest.raises(LookupError):
            next(answers)
        assert [] == list(answers)


@pytest.mark.parametrize("many", [blocking, in_a_loop])
def test_a_full_server_is_waited_for(server, many):
    """What it refuses is asked again after the pause that it names; no answer is lost, and none comes twice."""
    server.servicer.script.extend([0.0, FULL, FULL, 0.0, FULL])
    inputs = [f"{number} a" for number in range(20)]

    assert [f"a {number}" for number in range(20)] == texts(
        many(server.target, "translate", {"texts": inputs}, concurrency=5)
    )
    assert 23 == len(server.servicer.seen)


def test_a_server_that_stays_full_is_a_failure(server, client):
    """After `timeout` seconds, in place."""
    server.servicer.script.extend([replace(FULL, retry_after=0.5)] * 200)
    (answer,) = client.translate_many(["a"], timeout=3)

    # The time may be over in the last attempt.
    assert isinstance(answer, weft.Overloaded | weft.DeadlineExceeded)
    assert 2 <= len(server.servicer.seen) <= 8


def window_of(num_running, concurrency=8):
    """A window of as many inputs, of which so many run."""
    reach = Reach("nowhere:1")
    reach.answered = True
    window = Window(concurrency, 60.0, reach)
    asked = [window.read(TranslateRequest(text="a")) for _ in range(concurrency)]
    for each in asked[:num_running]:
        window.started(each, object())
    return window, asked


def test_a_full_server_is_sent_no_more_than_it_took():
    """A refusal lets only as many run as ran beside it; after the pause one more after as many answers."""
    window, asked = window_of(8)
    for each in asked[2:]:
        window.ended(each, weft.Overloaded("full", retry_after=1.0), 100.0)

    assert not window.may_send(200.0)
    window.ended(asked[0], "answer", 100.5)
    assert window.may_send(100.5)
    assert window.again(100.5) is None  # the refused wait out their pause
    assert 0.5 <= window.pause_s(100.5) <= 0.75
    assert asked[2] is window.again(101.25)
    window.started(asked[2], object())
    assert not window.may_send(101.25)
    for each in asked[1:3]:
        window.ended(each, "answer", 102.0)
    running = 0
    while window.may_send(102.0):
        window.started(window.again(102.0), object())
        running += 1
    assert 2 == running
    assert ["answer"] * 3 == [window.take() for _ in range(3)]
    assert window.take() is None


def test_a_server_that_takes_nothing_is_left_alone():
    """Where nothing of ours runs, nothing is sent for the whole pause; without a word of the server for a second."""
    window, asked = window_of(1)
    window.ended(asked[0], weft.Overloaded("full"), 100.0)

    assert not window.may_send(100.9)
    assert 0.1 <= window.pause_s(100.9) <= 0.35
    assert window.may_send(101.3)
    assert asked[0] is window.again(101.3)


def in_flight(server):
    """The calls that wait on the server."""
    return [seen for seen in server.servicer.seen if seen.request.text in server.servicer.by_text]


LEAVE = {
    "cancel": lambda many: many.cancel(),
    "the block's end": lambda many: many.__exit__(None, None, None),
    "left behind": lambda _: None,
}


@pytest.mark.parametrize("leave", LEAVE)
def test_cancelling_ends_what_is_in_flight(server, client, leave):
    """By `cancel`, by the end of the block, and by being left behind; then nothing more comes."""
    server.servicer.by_text = {"b": 30.0, "c": 30.0}
    many = client.translate_many(["a", "b", "c"])
    assert "a" == next(many).text
    asyncio.run(until(lambda: 2 == len(in_flight(server))))
    LEAVE[leave](many)
    if leave == "left behind":
        del many
    else:
        assert [] == list(many)

    assert all(seen.cancelled.wait(60) for seen in in_flight(server))


def test_what_is_left_behind_after_an_error_ends_at_once(server, client):
    """No cycle of objects keeps it: it does not wait for the garbage to be collected."""
    server.servicer.by_text = {"x": Failure(StatusCode.INVALID_ARGUMENT, "", "no"), "b": 30.0, "c": 30.0}
    gc.disable()
    try:
        many = client.translate_many(["x", "b", "c"])
        assert isinstance(next(many), weft.InvalidRequest)
        asyncio.run(until(lambda: 2 == sum(seen.request.text in "bc" for seen in server.servicer.seen)))
        left = weakref.ref(many)
        del many
        assert left() is None
    finally:
        gc.enable()


def test_who_asks_again_after_a_cancel_is_at_the_end():
    """What was refused, and what ran, is forgotten: nothing comes back when the pause is over."""
    window = Window(concurrency=2, patience_s=600, reach=Reach("host"), wait_s=600)
    asked = [window.read(TranslateRequest()) for _ in range(2)]
    for each in asked:
        window.started(each, "call")
    assert ["call"] * 2 == window.clear()
    for each in asked:
        window.ended(each, weft.Overloaded("full", retry_after=0.1), 100.0)
    assert window.again(200.0) is None

    refused = window.read(TranslateRequest())
    window.started(refused, "call")
    window.ended(refused, weft.Overloaded("full", retry_after=0.1), 200.0)
    assert [] == window.clear()
    assert window.again(300.0) is None


def test_cancelling_ends_who_waits(server, client):
    """A thread that waits for an answer gets none, and no error, when another one cancels."""
    server.servicer.by_text = {"b": 30.0}
    many = client.translate_many(["a", "b"])
    assert "a" == next(many).text
    with ThreadPoolExecutor() as threads:
        rest = threads.submit(list, many)
        asyncio.run(until(lambda: in_flight(server)))
        many.cancel()
        assert [] == rest.result(60)


def test_leaving_a_loop_ends_what_is_in_flight(server):
    """By `async with`, and by being left behind by a cancelled task; no task stays."""
    server.servicer.by_text = {"b": 30.0, "c": 30.0}

    async def run():
        async with weft.AsyncClient(server.target) as client:
            async with client.translate_many(["a", "b", "c"]) as many:
                assert "a" == (await anext(many)).text
                await until(lambda: 2 == len(in_flight(server)))
            await until(lambda: all(seen.cancelled.is_set() for seen in in_flight(server)))

            many = client.translate_many(["a", "b", "c"])
            assert "a" == (await anext(many)).text
            waiting = asyncio.ensure_future(anext(many))
            await until(lambda: 4 == len(in_flight(server)))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            del many, waiting
            await until(lambda: all(seen.cancelled.is_set() for seen in in_flight(server)))
        assert {asyncio.current_task()} == asyncio.all_tasks()

    asyncio.run(run())


def test_an_input_that_is_long_in_coming_keeps_no_answer_back(server):
    """The first answer comes before the second input."""

    async def run():
        taken = asyncio.Event()

        async def inputs():
            yield "a"
            await taken.wait()
            yield "b"

        async with weft.AsyncClient(server.target) as client:
            many = client.translate_many(inputs())
            first = await asyncio.wait_for(anext(many), 10)
            taken.set()
            return texts([first, *[answer async for answer in many]])

    assert ["a", "b"] == asyncio.run(run())


def test_a_closed_client_ends_it(server):
    """By an error, and then nothing comes."""
    client = weft.Client(server.target)
    many = client.translate_many(itertools.repeat("a"))
    next(many)
    client.close()
    with pytest.raises(weft.Error, match="closed"):
        for _ in many:
            pass
    assert [] == list(many)


def test_a_server_that_went_away_is_waited_for():
    """Once it has answered; one that never was there is an error for each input."""
    with fake_server(host=EMPTY) as server:
        target = server.target
        client = weft.Client(target, timeout=30.0)
        many = client.translate_many([f"{number} a" for number in range(40)], concurrency=2)
        found = [next(many)]
        # What a server cancels as it goes is an error.
        asyncio.run(until(lambda: all(one.call is None or one.call.done() for one in many._window._asked)))
    port = int(target.rpartition(":")[2])
    reader = threading.Thread(target=lambda: found.extend(many))
    reader.start()
    with pytest.raises(TimeoutError):  # for longer than gRPC's retries last, nothing comes
        asyncio.run(until(lambda: len(found) > 1 and isinstance(found[-1], weft.Error), timeout_s=3))
    with fake_server(port, host=EMPTY):
        reader.join(30)

    assert [f"a {number}" for number in range(40)] == texts(found)
    client.close()
    with weft.Client("127.0.0.1:1") as nowhere:
        assert [weft.Unavailable] * 3 == [type(each) for each in nowhere.translate_many(["a", "b", "c"])]


WRONG = [
    (("translate", "one text"), {}, "texts: must be an iterable of inputs, not str"),
    (("caption", b"12"), {}, "images: must be an iterable of inputs, not bytes"),
    (("score", "ab"), {}, "pairs: must be an iterable of inputs, not str"),
    (("score", [("a", "b")]), {"num_top_tokens": -1}, "num_top_tokens: "),
    (("translate", None), {}, "give texts"),
    (("generate",), {}, "give either prompts or messages"),
    (("classify", ["a"]), {"images": [b"1"]}, "give either texts or images or pairs"),
    (("classify",), {"pairs": [("a", "b")], "text_pair": "c"}, "text_pair: is in each of pairs"),
    (("translate", ["a"]), {"concurrency": 0}, "concurrency: must be a whole number of at least 1, not 0"),
    (("translate", ["a"]), {"concurrency": 1.5}, "concurrency: must be a whole number of at least 1, not 1.5"),
    (("translate", ["a"]), {"timeout": 0}, "timeout: must be more than 0"),
    (("translate", ["a"]), {"decoding": weft.Decoding(stop="x")}, "decoding.stop: must be a tuple"),
]


@pytest.mark.parametrize(("call", "options", "said"), WRONG)
def test_what_is_wrong_with_all_is_raised_at_once(client, server, call, options, said):
    """And not for each input."""
    verb, *inputs = call
    with pytest.raises(weft.InvalidRequest) as caught:
        getattr(client, f"{verb}_many")(*inputs, **options)

    assert caught.value.message.startswith(said)
    assert [] == server.servicer.seen
    with pytest.raises(TypeError, match="unknown option 'no'"):
        client.translate_many(["a"], no=1)


def test_who_is_told_to_wait_longer_than_the_patience_waits_not_at_all():
    """A rate of tokens may say hours. The error comes at once, and nobody sleeps."""
    window, asked = window_of(1)
    refused = weft.Overloaded("used up", retry_after=3600.0)
    window.ended(asked[0], refused, 100.0)
    assert refused is asked[0].outcome


def test_a_bundle_that_was_refused_is_not_waited_for():
    """The server names no time, as it does while a model loads: each input would wait in vain."""
    window, asked = window_of(2)
    refused = weft.Unavailable("refused", reason="MODEL_NOT_READY")
    window.ended(asked[0], refused, 100.0)
    window.ended(asked[1], weft.Unavailable("loading", reason="MODEL_NOT_READY", retry_after=5.0), 100.0)
    assert (refused, None) == (asked[0].outcome, asked[1].outcome)
