"""Which model a request means, how lanes share its slots, and what a refused one says."""

import asyncio
import os

import pytest

from loaded import Loaded
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.config import read_config
from weft_server.errors import InvalidRequest
from weft_server.loader import load_entry
from weft_server.metrics import Metrics
from weft_server.models import Entry, Models


def test_a_version_is_one_or_more(tmp_path):
    """Nought is outside the range that the proto states, not a version that is missing."""
    models = Models([Entry("en-es", 1, tmp_path)])
    with pytest.raises(InvalidRequest) as refused:
        models.find(common_pb2.ModelSelector(name="en-es", version=0))
    assert "model.version" == refused.value.field


def test_there_are_never_more_slots_than_allowed(tiny_repository):
    """With more lanes than slots, lanes are left out."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=3, lanes=8) as model:
            assert 3 == model.engine.stats().slots_total
            assert 3 == len(model.engine._lanes)

    asyncio.run(run())


def test_what_a_refusal_quotes_fits_into_a_message(tiny_repository, tmp_path):
    """A stray file whose name is not UTF-8 refuses its own bundle, in words that ListModels can hold."""
    directory = tmp_path / "1"
    directory.mkdir()
    for path in (tiny_repository / "tiny-text" / "1").iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    (directory / os.fsdecode(b"caf\xe9.txt")).touch()
    entry = Entry("tiny-text", 1, directory)
    asyncio.run(load_entry(entry, read_config(repository=tmp_path), Metrics()))

    assert model_pb2.MODEL_STATE_FAILED == entry.state
    assert "caf\\udce9.txt is not listed" in model_pb2.Model(error=entry.error).error
