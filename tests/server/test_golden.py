"""A model is ready only if it gives its golden answer, and explains it if it can."""

import asyncio

import numpy as np
import pytest
from tiny import CHECKPOINTS

from loaded import Loaded
from weft_server.errors import BundleError
from weft_server.explainer import Explanation
from weft_server.golden import verify_golden

TINY_BY_TASK = {make().task: name for name, make in reversed(CHECKPOINTS.items())}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_each_golden_answer_is_given_and_explained_once(tiny_repository, name):
    """What the exporter wrote is what is answered; a model that can explain has done so once, the others never."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            await verify_golden(model)
            assert int(model.explainer is not None) == model.metrics.explain.snapshot()[0][-1][1]

    asyncio.run(run())


@pytest.mark.parametrize("name", TINY_BY_TASK.values())
def test_another_answer_is_refused(tiny_repository, name):
    """Other tokens, other probabilities, or those of fewer tokens: one sentence says that the golden answer differs."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            golden = model.manifest.golden
            if golden.token_ids:
                golden.token_ids[-1] = (golden.token_ids[-1] + 1) % model.manifest.text.target_vocab_size
            else:
                golden.probabilities[0] += 0.01
            with pytest.raises(BundleError, match="the golden answer differs"):
                await verify_golden(model)
            if len(golden.probabilities) > len(model.manifest.labels):
                del golden.probabilities[-len(model.manifest.labels) :]
                with pytest.raises(BundleError, match="the golden answer differs"):
                    await verify_golden(model)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda weights, mass: (weights[:, 1:], mass), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights[1:], mass[1:]), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights, mass[:-1]), r"explained by \(\d+, \d+\) weights, not"),
        (lambda weights, mass: (weights * 1.01, mass), "rows that do not sum to 1"),
        (lambda weights, mass: (weights * np.nan, mass), "rows that do not sum to 1"),
    ],
    ids=["a column short", "a row short", "a mass short", "above 1", "not a number"],
)
@pytest.mark.parametrize("name", ["tiny-translate", "tiny-image", "tiny-tags", "tiny-generate"])
def test_an_explanation_that_does_not_fit_is_refused(tiny_repository, name, spoil, sentence):
    """Rows or columns that are not the answer's, and rows that are no distribution, keep a model from being ready."""

    async def run():
        async with Loaded(tiny_repository / name / "1") as model:
            explain = model.explainer.explain
            model.explainer.explain = lambda *asked: Explanation(*spoil(*explain(*asked)))
            with pytest.raises(BundleError, match=sentence):
                await verify_golden(model)

    asyncio.run(run())
