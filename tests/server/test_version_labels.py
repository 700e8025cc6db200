"""Which version bears a label, and which requests are a canary's."""

import json
import os

import pytest

from weft_proto.v1 import common_pb2, model_pb2
from weft_server.bundle.repository import RepositoryError
from weft_server.errors import InvalidRequest, ModelNotFound
from weft_server.lifecycle.labels_file import read_labels, restrict
from weft_server.models.allowed_models import ALL_MODELS
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.version_labels import VersionLabels

IDS = [f"request-{number}" for number in range(20_000)]


def _models(labels, *states):
    ready = model_pb2.MODEL_STATE_READY
    entries = [RegistryEntry("m", number, None, state or ready) for number, state in enumerate(states or (0, 0, 0), 1)]
    models = ModelRegistry(entries)
    models.set_labels("m", labels)
    return models


def _means(models, request_id=None, **selector):
    return models.find(common_pb2.ModelSelector(name="m", **selector), ALL_MODELS, request_id).version


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_a_canary_gets_its_share(share):
    """Of requests with ids of any kind, within four standard deviations."""
    labels = VersionLabels(canary=2, share=share)
    drawn = sum(labels.draws_canary("m", request_id) for request_id in IDS)
    spread = (share * (1 - share) * len(IDS)) ** 0.5
    assert abs(drawn - share * len(IDS)) <= 4 * spread


def test_the_same_request_gets_the_same_version_and_a_larger_share_keeps_its_own():
    """The draw depends on model and request id alone, and other models have other draws."""
    small, large = VersionLabels(canary=2, share=0.1), VersionLabels(canary=2, share=0.3)
    drawn = {each for each in IDS if small.draws_canary("m", each)}
    assert drawn == {each for each in IDS if small.draws_canary("m", each)}
    assert drawn < {each for each in IDS if large.draws_canary("m", each)}
    assert drawn != {each for each in IDS if small.draws_canary("n", each)}


def test_without_a_label_the_highest_answers_and_a_canary_only_its_share():
    """A version that is a canary is nobody's default, unless there is no other."""
    assert 3 == _means(_models(VersionLabels()), "r")
    assert 2 == _means(_models(VersionLabels(canary=3)), "r")
    assert 3 == _means(_models(VersionLabels(canary=3, share=1.0)), "r")
    # Who asks what there is to say of a model is in no share.
    assert 2 == _means(_models(VersionLabels(canary=3, share=1.0)))
    assert 1 == _means(_models(VersionLabels(canary=1), 0), "r")


def test_stable_pins_the_default_and_labels_can_be_named():
    """A version that comes later, higher, changes nothing for who names none."""
    models = _models(VersionLabels(stable=1, canary=3, share=0.0))
    assert 1 == _means(models, "r")
    assert (1, 3) == (_means(models, version_label="stable"), _means(models, version_label="canary"))
    assert 2 == _means(models, version=2)
    with pytest.raises(ModelNotFound, match=r"^no version of model 'm' is canary$"):
        _means(_models(VersionLabels()), version_label="canary")
    with pytest.raises(InvalidRequest) as refused:
        _means(models, version_label="newest")
    assert "model.version_label" == refused.value.field


def test_what_drains_is_not_found():
    """By no selector: the next version takes over at once."""
    models = _models(VersionLabels(), 0, model_pb2.MODEL_STATE_DRAINING)
    assert 1 == _means(models, "r")
    with pytest.raises(ModelNotFound):
        _means(models, version=2)


def test_a_canary_that_becomes_stable_is_none_any_more():
    """A version bears one label, and stable is never made a canary by the way."""
    labels = VersionLabels(stable=1).put("canary", 2, 0.25)
    assert VersionLabels(1, 2, 0.25) == labels
    assert VersionLabels(2) == labels.put("stable", 2)
    assert VersionLabels(1) == labels.put("canary", None)
    assert VersionLabels(None, 2, 0.25) == labels.without(1)
    for wrong in (("canary", 1, 0.1), ("canary", 2, 1.5), ("canary", 2, float("nan")), ("stable", 2, 0.5), ("", 2)):
        with pytest.raises(InvalidRequest):
            labels.put(*wrong)


def test_a_file_of_labels_is_small(tmp_path):
    """64 KiB are read of it, and one byte more is refused whatever it says."""
    stated = b'{"stable": 1}'
    (tmp_path / "labels.json").write_bytes(stated.ljust(65_536))
    assert VersionLabels(1) == read_labels(tmp_path)
    (tmp_path / "labels.json").write_bytes(stated.ljust(65_537))
    with pytest.raises(RepositoryError, match=r"labels\.json has more than 65,536 bytes$"):
        read_labels(tmp_path)


def test_a_file_of_labels_that_cannot_be_read_is_named(tmp_path):
    """With the system's words."""
    (tmp_path / "labels.json").symlink_to("/proc/self/mem")  # it is a file, whose first byte nobody can read
    with pytest.raises(RepositoryError, match=r"labels\.json: Input/output error$"):
        read_labels(tmp_path)


def test_a_file_states_labels(tmp_path):
    """Nothing where there is no file; what it names and is not there is left out by `restrict`."""
    assert None is read_labels(tmp_path)
    path = tmp_path / "labels.json"
    path.write_text('{"stable": 1, "canary": {"version": 2, "share": 0.1}}')
    assert VersionLabels(1, 2, 0.1) == read_labels(tmp_path)
    assert VersionLabels(1) == restrict(VersionLabels(1, 2, 0.1), [1, 3])
    path.write_text("{}")
    assert VersionLabels() == read_labels(tmp_path)


@pytest.mark.parametrize(
    "stated",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"newest": 1}',
        '{"stable": 0}',
        '{"stable": true}',
        '{"stable": "1"}',
        '{"canary": 2}',
        '{"canary": {"share": 0.1}}',
        '{"canary": {"version": 2, "share": 2}}',
        '{"canary": {"version": 2, "share": "0.1"}}',
        '{"canary": {"version": 2, "share": NaN}}',
        '{"stable": 2, "canary": {"version": 2}}',
        json.dumps({"canary": {"version": 2, "weight": 1}}),
    ],
)
def test_a_file_that_states_something_else_is_refused(tmp_path, stated):
    """In one sentence that names it."""
    (tmp_path / "labels.json").write_text(stated)
    with pytest.raises(RepositoryError, match=r"labels\.json"):
        read_labels(tmp_path)


def test_what_is_no_small_file_states_nothing(tmp_path):
    """A pipe would be waited for for ever, and a file without an end would be read to it."""
    os.mkfifo(tmp_path / "labels.json")
    with pytest.raises(RepositoryError, match=r"labels\.json is no file$"):
        read_labels(tmp_path)
    (tmp_path / "labels.json").unlink()
    (tmp_path / "labels.json").write_text('{"stable": 1}' + " " * (1 << 16))
    with pytest.raises(RepositoryError, match="has more than 65,536 bytes"):
        read_labels(tmp_path)
