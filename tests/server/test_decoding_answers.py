"""What a Decoding does to answers of whole models: alone, in a crowd, in a stream, and in what the answer tells."""

import asyncio
import random

import pytest

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.requests.phrase_reader import PhraseReader

NAMES = ["tiny-generate", "tiny-translate", "tiny-t5", "tiny-attention-rnn"]


def ids(*tokens):
    """A set of tokens."""
    return common_pb2.TokenSet(ids=tokens)


def phrase(*tokens):
    """A phrase of tokens."""
    return common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=tokens))


def facts(answer):
    """What of an answer must be the same to the bit."""
    tops = [(list(top.token_ids), list(top.log_probs)) for top in answer.top_tokens]
    return answer.text, list(answer.token_ids), list(answer.token_log_probs), answer.finish_reason, answer.score, tops


def drawn(rng, words, *, has_source):  # noqa: C901 - a line for each setting
    """A request with some settings."""
    decoding = common_pb2.Decoding(max_new_tokens=rng.randrange(4, 20))
    penalties = common_pb2.Penalties()
    for name, values in {"repetition": (0.5, 1.5, 3), "presence": (-1, 2), "frequency": (-0.5, 0.5)}.items():
        if rng.random() < 0.4:
            setattr(penalties, name, rng.choice(values))
    if rng.random() < 0.4:
        penalties.no_repeat_ngram_size = rng.randrange(1, 4)
    if has_source and rng.random() < 0.3:
        penalties.encoder_repetition = rng.choice((0.5, 2))
        penalties.encoder_no_repeat_ngram_size = rng.randrange(3)
    decoding.penalties.CopyFrom(penalties)
    tokens = [rng.choice(words) for _ in range(12)]
    settings = {
        "bias": [common_pb2.PhraseBias(token_ids=common_pb2.TokenIds(ids=tokens[:1]), bias=4)],
        "banned": [phrase(*tokens[1:2]), phrase(*tokens[2:4])],
        "suppressed": ids(*tokens[4:6]),
        "suppressed_first": ids(*tokens[6:8]),
        "length_decay": common_pb2.LengthDecay(start=2, factor=1.3),
        "stop_token_ids": ids(tokens[8]),
        "prefix": phrase(*tokens[9:11]),
        "forced_last_id": tokens[11],
    }
    for name, value in settings.items():
        if rng.random() < 0.3:
            decoding.MergeFrom(common_pb2.Decoding(**{name: value}))
    if decoding.stop_token_ids.ids and tokens[8] in tokens[9:11]:
        decoding.ClearField("prefix")
    kind = rng.randrange(4)
    if kind == 0:
        decoding.sampling.CopyFrom(common_pb2.Sampling(seed=rng.randrange(99), temperature=rng.choice((0.7, 1, 2))))
        for name, value in {"min_p": 0.05, "typical_p": 0.8, "epsilon_cutoff": 0.002, "top_p": 0.9}.items():
            if rng.random() < 0.3:
                setattr(decoding.sampling, name, value)
    elif kind == 1 and not decoding.HasField("stop_token_ids"):
        decoding.beams.num_beams = 3
        decoding.num_outputs = 2
    return decoding


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_bit_identical_in_any_crowd(tiny_repository, name):
    """Whatever its neighbours ask for: the same tokens, log-probabilities and top tokens as alone."""

    async def run():
        rng = random.Random(5)
        async with Loaded(tiny_repository / name / "1", slots=8, lanes=1) as model:
            text, spec = model.manifest.golden.text, model.manifest.text
            has_source = model.manifest.task == common_pb2.TASK_TRANSLATE
            has_source &= spec.source_vocab_size == spec.target_vocab_size
            words = [token for token in range(spec.target_vocab_size) if token not in spec.end_ids]
            requests = [
                {
                    "text": text,
                    "decoding": drawn(rng, words, has_source=has_source),
                    "return_scores": rng.random() < 0.5,
                    "num_top_tokens": rng.choice((0, 0, 3, 20)),
                }
                for _ in range(40)
            ]
            crowded = await asyncio.gather(*(ask(model, **request) for request in requests))
            for request, together in zip(requests, crowded, strict=True):
                alone = await ask(model, **request)
                assert facts(alone.completion) == facts(together.completion), request["decoding"]

    asyncio.run(run())


@pytest.mark.parametrize("name", NAMES)
def test_a_forced_prefix_of_an_answer_gives_that_answer(tiny_repository, name):
    """With the log-probabilities and top tokens that the model gives, in any length. The text begins with it."""

    async def run():
        async with Loaded(tiny_repository / name / "1", slots=4, lanes=1) as model:
            common = {"text": model.manifest.golden.text, "return_scores": True, "num_top_tokens": 4}
            twelve = {"max_new_tokens": 12, "min_new_tokens": 12}
            free = (await ask(model, **common, decoding=common_pb2.Decoding(**twelve))).completion
            for length in (1, 5, 12):
                decoding = common_pb2.Decoding(**twelve, prefix=phrase(*free.token_ids[:length]))
                forced = (await ask(model, **common, decoding=decoding)).completion
                assert facts(free) == facts(forced)
            worst = phrase(*(free.top_tokens[0].token_ids[1:2]), *([free.token_ids[0]] * 3))
            other = (await ask(model, **common, decoding=common_pb2.Decoding(**twelve, prefix=worst))).completion
            assert list(worst.token_ids.ids) == other.token_ids[:4]
            assert free.top_tokens[0].log_probs[1] == other.token_log_probs[0]
            assert 12 == len(other.token_ids)

    asyncio.run(run())


@pytest.mark.parametrize("name", NAMES)
def test_the_most_probable_tokens_of_each_step_are_told(tiny_repository, name):
    """The chosen one first where the choice is greedy, with its log-probability; also many of them."""

    async def run():
        async with Loaded(tiny_repository / name / "1", slots=8, lanes=1) as model:
            common = {"text": model.manifest.golden.text, "return_scores": True}
            for num in (1, 20):
                decoding = common_pb2.Decoding(max_new_tokens=6)
                answer = (await ask(model, **common, decoding=decoding, num_top_tokens=num)).completion
                assert list(answer.token_ids) == [top.token_ids[0] for top in answer.top_tokens]
                assert list(answer.token_log_probs) == [top.log_probs[0] for top in answer.top_tokens]
                assert list(answer.tokens) == [top.tokens[0] for top in answer.top_tokens]
                for top in answer.top_tokens:
                    assert num == len(top.token_ids) == len(set(top.token_ids)) == len(top.log_probs)
                    assert sorted(top.log_probs, reverse=True) == list(top.log_probs)
            decoding = common_pb2.Decoding(max_new_tokens=6, beams=common_pb2.Beams(num_beams=4), num_outputs=4)
            answer = (await ask(model, **common, decoding=decoding, num_top_tokens=20)).completion
            for output in (answer, *answer.others):
                assert len(output.token_ids) == len(output.top_tokens)
                for token, own, top in zip(output.token_ids, output.token_log_probs, output.top_tokens, strict=True):
                    assert dict(zip(top.token_ids, top.log_probs, strict=True)).get(token, own) == own
            assert not (await ask(model, **common)).completion.top_tokens
            with pytest.raises(InvalidRequest, match="num_top_tokens must be at most 20, not 21"):
                await ask(model, **common, num_top_tokens=21)

    asyncio.run(run())


def test_texts_are_phrases(tiny_repository):
    """A banned one never comes, a prefix begins the answer, and one that its tokens do not say is refused."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            twenty = {"max_new_tokens": 20, "min_new_tokens": 20}

            async def answer(**decoding):
                return (await ask(model, text="def", decoding=common_pb2.Decoding(**twenty, **decoding))).completion

            free = await answer()
            # A letter that is a token of its own. Longer tokens may still have it.
            letter = next(piece for piece in model.target_tokenizer.pieces(free.token_ids) if len(piece) == 1)
            banned = await answer(banned=[common_pb2.Phrase(text=letter)])
            assert model.target_tokenizer.encode_framed(letter)[0] in free.token_ids
            assert model.target_tokenizer.encode_framed(letter)[0] not in banned.token_ids
            assert letter == banned.decoding.banned[0].text
            for prefix in ("xyz", " a b", "def f(x):\n", "é"):
                begun = await answer(prefix=common_pb2.Phrase(text=prefix))
                assert begun.text.startswith(prefix)
                assert prefix == begun.decoding.prefix.text
            with pytest.raises(InvalidRequest, match=r"decoding\.prefix has \d+ tokens, more than decoding\.max_new"):
                await answer(prefix=common_pb2.Phrase(text="xyz" * 40))

    asyncio.run(run())


def test_a_prefix_that_its_tokens_do_not_say_is_refused(tiny_repository):
    """The answer's text would begin with something else."""
    tokenizer = Tokenizer(tiny_repository / "tiny-translate" / "1" / "target.json")
    with pytest.raises(InvalidRequest, match="is nothing that the model can say: its tokens say") as refused:
        PhraseReader(tokenizer, 1 << 20).prefix(common_pb2.Phrase(text="  never   heard "))
    assert "decoding.prefix.text" == refused.value.field


def test_rows_that_are_read_whole_are_counted(tiny_repository):
    """By why. A request without settings reads none."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=4, lanes=1) as model:
            metrics = model.metrics
            metrics.set_ready()

            def read(why):
                return metrics.counters["rows_read_whole_total", why].value

            eight = {"max_new_tokens": 8, "min_new_tokens": 8}
            await ask(model, text="def", decoding=common_pb2.Decoding(**eight))
            assert (0, 0) == (read("draw"), read("rules"))
            sampling = common_pb2.Sampling(typical_p=0.9, seed=1)
            await ask(model, text="def", decoding=common_pb2.Decoding(**eight, sampling=sampling))
            assert (8, 0) == (read("draw"), read("rules"))
            answer = (await ask(model, text="def", num_top_tokens=20, decoding=common_pb2.Decoding(**eight))).completion
            every = ids(*range(len(model.target_tokenizer.vocabulary.tokens) - 1))
            await ask(model, text="def", decoding=common_pb2.Decoding(max_new_tokens=2, suppressed=every))
            assert read("rules") >= 1
            assert 8 == len(answer.top_tokens)

    asyncio.run(run())
