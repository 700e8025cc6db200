"""Filling masks: ties, runs of many masks, golden answers, and what is said of it before one asks."""

import asyncio
import json
import shutil
import tracemalloc

import numpy as np
import pytest
from tiny_masks import MASK

from loaded import Loaded, ask
from waiting import held, until
from weft_server.config import read_config
from weft_server.errors import BundleError, InvalidRequest, Overloaded
from weft_server.loading.golden import verify_golden
from weft_server.loading.model_card import card_of
from weft_server.models.held_bytes import HeldBytes
from weft_server.preprocessing.masked_text import MAX_TARGETS, best_of, log_probs_of
from weft_server.rpc import fill_mask


@pytest.fixture
def bundle(tiny_repository):
    """The bundle of the tiny model."""
    return tiny_repository / "tiny-masks" / "1"


def test_the_best_are_those_of_a_sort():
    """Highest first, and of equal ones the lower index, for any number of them."""
    scores = np.random.default_rng(0).integers(0, 9, 60) / 9
    expected = np.argsort(-scores, kind="stable")
    for count in (1, 2, 7, 59, 60, 61):
        assert expected[:count].tolist() == best_of(scores, count).tolist()


def test_log_probabilities_are_of_the_whole_vocabulary():
    """They sum to 1, also of large logits, and have the same bits for some tokens as for all."""
    for logits in np.random.default_rng(0).normal(0, 300, (5, 70)).astype(np.float32):
        everything = log_probs_of(logits, np.arange(70))
        assert pytest.approx(1) == np.exp(everything).sum()
        some = np.array([69, 3, 12])
        assert everything[some].tobytes() == log_probs_of(logits, some).tobytes()


def test_a_model_says_its_mask_and_takes_no_more_than_it_says(bundle):
    """The card has the mask token. A small vocabulary bounds `top_k`, and the default is not more."""

    async def run():
        async with Loaded(bundle) as model:
            vocab = model.manifest.text.source_vocab_size
            assert MASK == (await card_of(model, read_config(repository=bundle))).mask_token
            most = min(100, vocab)
            text = f"the {MASK}"
            assert most == len((await ask(model, text=text, top_k=most)).masks[0].fillings)
            whole = await ask(model, text=text, top_k=most, targets=["the", "the", "cat"])
            assert 2 == len(whole.masks[0].fillings)
            assert 5 == len((await ask(model, text=text)).masks[0].fillings)
            with pytest.raises(InvalidRequest, match=rf"must be 1\.\.{most}, not {most + 1}"):
                await ask(model, text=text, top_k=most + 1)
            with pytest.raises(InvalidRequest, match="are 1025; at most 1024 are taken"):
                await ask(model, text=text, targets=["the"] * (MAX_TARGETS + 1))

    asyncio.run(run())


def test_answers_have_the_same_bits_in_any_company(bundle):
    """Texts of other lengths, with other numbers of masks, alone and in a crowd."""
    words = ["the", "cat", "dog", "eats", "finds"]
    texts = [" ".join([*words[: 1 + n % 5] * (1 + n % 7), *[MASK] * (1 + n % 3)]) for n in range(40)]

    async def run():
        async with Loaded(bundle) as model:
            alone = [(await ask(model, text=text, top_k=5)).masks for text in texts]
            together = await asyncio.gather(*(ask(model, text=text, top_k=5) for text in texts))
            assert alone == [answer.masks for answer in together]

    asyncio.run(run())


def test_picking_takes_little_memory(bundle):
    """A vocabulary's numbers are looked at for one mask at a time: never is there a table of all in float64."""
    vocab = 250_000
    logits = np.random.default_rng(0).normal(0, 3, (16, vocab)).astype(np.float32)

    async def run():
        async with Loaded(bundle) as model:
            mask_id = model.manifest.text.mask_id
            source = fill_mask.FillMaskInput(model.reader, model.source_tokenizer, mask_id, f"the {MASK} {MASK}")
            source.read()
            source.masks *= 8
            source.tokenizer.vocabulary.text = str
            tracemalloc.start()
            try:
                found = source.filled(logits, 5)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 8 * 4 * vocab
            for row, filled in zip(logits, found, strict=True):
                best = np.argsort(-row, kind="stable")[:5]
                assert best.tolist() == [each.token_id for each in filled.fillings]
                powers = np.exp(row.astype(np.float64))
                expected = powers[best] / powers.sum()
                assert pytest.approx(expected) == [each.score for each in filled.fillings]

    asyncio.run(run())


def test_what_waits_with_its_logits_is_bounded_by_bytes(bundle, monkeypatch):
    """Who finds no room is refused before its text is run. What has ended, or failed, gives its bytes back."""

    async def run():
        async with Loaded(bundle, lanes=1) as model:
            size = 4 * model.manifest.text.source_vocab_size
            logits = HeldBytes("these masks take", 3 * size, 2 * size)
            monkeypatch.setattr(fill_mask, "LOGITS", logits)
            with held(model):
                first = asyncio.create_task(ask(model, text=f"the {MASK} {MASK}"))
                await until(lambda: model.engine.stats().running)
                assert 2 * size == logits.held
                second = asyncio.create_task(ask(model, text=f"the {MASK}"))
                await until(lambda: 3 * size == logits.held)
                with pytest.raises(Overloaded, match=f"these masks take {size:,} bytes, and others") as refused:
                    await ask(model, text=f"the {MASK}")
                assert ("BYTE_BUDGET", 1) == (refused.value.reason, model.engine.stats().queued)
                second.cancel()
                await asyncio.wait([second])
                assert 2 * size == logits.held
            assert 2 == len((await first).masks)
            assert 0 == logits.held
            # More than all may hold: it is alone.
            assert 4 == len((await ask(model, text=f"the {MASK} {MASK} {MASK} {MASK}")).masks)
            assert 0 == logits.held

    asyncio.run(run())


def test_a_tenant_holds_its_part_of_the_logits(bundle, monkeypatch):
    """One more of the tenant who has it is refused, and another tenant's is taken. When it has ended, all is free."""

    async def run():
        async with Loaded(bundle, lanes=1) as model:
            size = 4 * model.manifest.text.source_vocab_size
            logits = HeldBytes("these masks take", 4 * size, 2 * size)
            monkeypatch.setattr(fill_mask, "LOGITS", logits)
            for _ in range(2):
                with held(model):
                    asked = [asyncio.create_task(ask(model, "a", text=f"the {MASK} {MASK}"))]
                    await until(lambda: 2 * size == logits.held)
                    with pytest.raises(Overloaded, match="and others hold the room"):
                        await ask(model, "a", text=f"the {MASK}")
                    asked.append(asyncio.create_task(ask(model, "b", text=f"the {MASK}")))
                    await until(lambda: 3 * size == logits.held)
                assert [2, 1] == [len(answer.masks) for answer in await asyncio.gather(*asked)]
                assert 0 == logits.held

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda golden: golden["scores"].__setitem__(3, -9.5), "the golden answer differs by more than 0.001"),
        (lambda golden: [golden[name].pop() for name in ("scores", "tokenIds")], "which are no rows for 2 masks"),
        (lambda golden: golden.__setitem__("text", "the cat"), "has no mask"),
    ],
)
def test_a_bundle_that_fills_otherwise_is_not_ready(bundle, tmp_path, change, why):
    """A score of the golden answer that is another, rows that are none, and a text without a mask."""
    other = tmp_path / "masks" / "1"
    shutil.copytree(bundle, other)
    manifest = json.loads((other / "bundle.json").read_text())
    change(manifest["golden"])
    (other / "bundle.json").write_text(json.dumps(manifest))

    async def run():
        async with Loaded(other) as model:
            with pytest.raises((BundleError, InvalidRequest), match=why):
                await verify_golden(model)

    asyncio.run(run())
