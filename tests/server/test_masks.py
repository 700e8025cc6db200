"""Filling masks: ties, runs of many masks, golden answers, and what is said of it before one asks."""

import asyncio
import json
import shutil

import numpy as np
import pytest
from tiny_masks import MASK, tiny_masks

from loaded import Loaded, ask
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_server.config import read_config
from weft_server.content.masks import MAX_TARGETS, best_of, log_probs_of
from weft_server.errors import BundleError, InvalidRequest
from weft_server.serving.card import card_of
from weft_server.serving.golden import verify_golden


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle of the tiny model, made of a checkpoint of our own format."""
    path = tmp_path_factory.mktemp("masks")
    save_checkpoint(path / "checkpoint", tiny_masks())
    export_checkpoint(path / "checkpoint", path / "models" / "masks" / "1")
    return path / "models" / "masks" / "1"


def test_the_best_are_those_of_a_sort():
    """Highest first, and of equal ones the lower index, for any number of them."""
    scores = np.random.default_rng(0).integers(0, 9, 60) / 9
    expected = np.argsort(-scores, kind="stable")
    for count in (1, 2, 7, 59, 60, 61):
        assert expected[:count].tolist() == best_of(scores, count).tolist()


def test_log_probabilities_of_a_row_hang_on_it_alone():
    """They sum to 1, also of large logits, and have the same bits beside other rows."""
    logits = np.random.default_rng(0).normal(0, 300, (5, 70)).astype(np.float32)
    together = log_probs_of(logits)
    assert pytest.approx(np.ones(5)) == np.exp(together).sum(axis=1)
    for row, logs in zip(logits, together, strict=True):
        assert log_probs_of(row[None])[0].tobytes() == logs.tobytes()


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
