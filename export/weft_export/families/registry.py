"""Family name to model, sizes and task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft_export.classifier import Classifier
from weft_export.families.captioner import Captioner, CaptionerConfig
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.text_classifier import TextClassifier, TextClassifierConfig
from weft_export.families.vit import Vit, VitConfig
from weft_export.writer import Writer
from weft_proto.v1 import common_pb2


@dataclass(frozen=True)
class Family:
    """One architecture: its module, built from its config, and what it is for."""

    model: Callable[[Any], Writer | Classifier]
    config: Callable[..., Any]
    task: common_pb2.Task.ValueType


FAMILIES = {
    "encoder_decoder": Family(EncoderDecoder, EncoderDecoderConfig, common_pb2.TASK_TRANSLATE),
    "captioner": Family(Captioner, CaptionerConfig, common_pb2.TASK_CAPTION),
    "text_classifier": Family(TextClassifier, TextClassifierConfig, common_pb2.TASK_CLASSIFY_TEXT),
    "vit": Family(Vit, VitConfig, common_pb2.TASK_CLASSIFY_IMAGE),
    "causal_lm": Family(CausalLm, CausalLmConfig, common_pb2.TASK_GENERATE),
}
