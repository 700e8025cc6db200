"""What a family is, of ours or of another package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft_export.families.classifier import Classifier
from weft_export.families.writer import Writer
from weft_proto.v1 import common_pb2


@dataclass(frozen=True)
class Family:
    """One architecture: its module, built from its config, and what it is for."""

    model: Callable[[Any], Writer | Classifier]
    config: Callable[..., Any]
    task: common_pb2.Task.ValueType
