"""Each task of common.proto is one row, for the exporter and for the server."""

from weft_export.checkpoints.specs import DEMANDS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

EVERY = {value: name for name, value in common_pb2.Task.items() if value != common_pb2.TASK_UNSPECIFIED}


def test_each_task_is_a_row():
    """Under the name that common.proto gives it, and no other is."""
    assert EVERY == {value: f"TASK_{task.name.upper()}" for value, task in TASKS.items()}
    assert set(EVERY) == set(DEMANDS)


def test_an_answer_is_a_text_labels_or_a_vector():
    """A bundle's graphs decode, classify, tag, fill masks, label moments or embed: one. Matching embeds twice."""
    answers = {
        bundle_pb2.GRAPH_ROLE_DECODER,
        bundle_pb2.GRAPH_ROLE_CLASSIFIER,
        bundle_pb2.GRAPH_ROLE_TAGGER,
        bundle_pb2.GRAPH_ROLE_MASKED_LM,
        bundle_pb2.GRAPH_ROLE_CTC,
        bundle_pb2.GRAPH_ROLE_EMBEDDER,
        bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER,
    }

    for task in TASKS.values():
        assert 1 + task.matches == len(task.needs & answers), task.name
