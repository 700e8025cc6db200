"""Which model a request means, how lanes share its slots, and what a refused one says."""

import asyncio
import os
import shutil

import pytest

from loaded import Loaded
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.config import read_config
from weft_server.errors import InvalidRequest, ModelNotFound, ModelNotReady
from weft_server.loading.loader import load_entry
from weft_server.models.allowed_models import ALL_MODELS
from weft_server.models.registry import LOADING_RETRY_S, ModelRegistry, RegistryEntry
from weft_server.models.request_context import RequestContext
from weft_server.telemetry.metrics import Metrics


def test_a_version_is_one_or_more(tmp_path):
    """Nought is outside the range that the proto states, not a version that is missing."""
    models = ModelRegistry([RegistryEntry("en-es", 1, tmp_path)])
    with pytest.raises(InvalidRequest) as refused:
        models.find(common_pb2.ModelSelector(name="en-es", version=0), ALL_MODELS)
    assert "model.version" == refused.value.field


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    """Once each, and not more than one can read."""
    models = ModelRegistry(
        [RegistryEntry(name, version, tmp_path) for name in ("en-es", "digits") for version in (1, 2)]
    )
    with pytest.raises(ModelNotFound, match=r"^there is no model 'nope'; there are digits, en-es$"):
        models.find(common_pb2.ModelSelector(name="nope"), ALL_MODELS)
    models = ModelRegistry([RegistryEntry(f"m{number:02}", 1, tmp_path) for number in range(30)])
    with pytest.raises(ModelNotFound, match=r"there are m00, .*, m09, 20 more$"):
        models.find(common_pb2.ModelSelector(name="nope"), ALL_MODELS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('"precision": "PRECISION_FP32"', '"precision": 0'),
            "no model for classify_image is ready: model 'a' version 1 was refused: precision 0 is unknown",
        ),
        (("{", "["), "model 'a' version 1, whose task is not known, was refused: bundle.json is not a BundleManifest"),
        (('"task": "TASK_CLASSIFY_IMAGE"', '"task": "TASK_TAG"'), "there is no model for classify_image; there are a"),
    ],
)
def test_a_request_that_names_no_model_is_told_of_the_one_that_was_refused(tiny_repository, tmp_path, change, sentence):
    """It would have been for this task, or may have been; one for another task has nothing to do with it."""
    directory = tmp_path / "1"
    shutil.copytree(tiny_repository / "tiny-image" / "1", directory)
    text = (directory / "bundle.json").read_text()
    assert change[0] in text
    (directory / "bundle.json").write_text(text.replace(*change, 1))
    entry = RegistryEntry("a", 1, directory)
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), Metrics()))
    with pytest.raises((ModelNotReady, ModelNotFound)) as refused:
        asyncio.run(
            ModelRegistry([entry]).take(RequestContext("x"), common_pb2.ModelSelector(), common_pb2.TASK_CLASSIFY_IMAGE)
        )
    assert sentence in refused.value.message


@pytest.mark.parametrize(
    ("state", "sentence", "retry_after_s"),
    [
        (model_pb2.MODEL_STATE_FAILED, "model 'a' version 1 was refused: its files differ", None),
        (model_pb2.MODEL_STATE_LOADING, "model 'a' version 1 is loading", LOADING_RETRY_S),
    ],
)
def test_a_model_that_does_not_answer_says_why(tmp_path, state, sentence, retry_after_s):
    """One that is refused stays so. One that loads may be asked again."""
    entry = RegistryEntry("a", 1, tmp_path, state, "its files differ", common_pb2.TASK_TAG)
    with pytest.raises(ModelNotReady) as refused:
        asyncio.run(
            ModelRegistry([entry]).take(RequestContext("x"), common_pb2.ModelSelector(name="a"), common_pb2.TASK_TAG)
        )
    assert (sentence, retry_after_s) == (refused.value.message, refused.value.retry_after_s)


def test_there_are_never_more_slots_than_allowed(tiny_repository):
    """With more lanes than slots, lanes are left out."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=3, lanes=8) as model:
            assert 3 == model.engine.stats().held.slots_total
            assert 3 == len(model.engine.lanes)

    asyncio.run(run())


def test_what_a_refusal_quotes_fits_into_a_message(tiny_repository, tmp_path):
    """A stray file whose name is not UTF-8 refuses its own bundle, in words that ListModels can hold."""
    directory = tmp_path / "1"
    directory.mkdir()
    for path in (tiny_repository / "tiny-text" / "1").iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / os.fsdecode(b"caf\xe9.txt")).touch()
    entry = RegistryEntry("tiny-text", 1, directory)
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), Metrics()))

    assert model_pb2.MODEL_STATE_FAILED == entry.state
    assert "caf\\udce9.txt is not listed" in model_pb2.Model(error=entry.error).error
