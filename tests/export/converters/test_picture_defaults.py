"""A field that config.json of a model of pictures does not have is what transformers' class takes it for."""

import json

import pytest
import transformers

from weft_export.converters.convert import converter_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.options import ExportOptions

# Class, the side of the pictures that its class takes for granted, and what config.json has to say.
# Swin V2's own default size and window do not go together; ConvNeXt and ResNet take pictures of any size.
WINDOWS = {"image_size": 256, "window_size": 8}
PICTURES = [
    ("ViTForImageClassification", 224, {}),
    ("DeiTForImageClassification", 224, {}),
    ("DeiTForImageClassificationWithTeacher", 224, {}),
    ("BeitForImageClassification", 224, {}),
    ("SwinForImageClassification", 224, {}),
    ("Swinv2ForImageClassification", 256, WINDOWS),
    ("ConvNextForImageClassification", 200, {}),
    ("ResNetForImageClassification", 200, {}),
    ("CLIPForImageClassification", 224, {}),
    ("CLIPModel", 224, {}),
    ("SiglipForImageClassification", 224, {}),
    ("SiglipVisionModel", 224, {}),
    ("BlipForConditionalGeneration", 384, {}),
    *(
        ("VisionEncoderDecoderModel", 224, {"encoder": {"model_type": one}, "decoder": {"model_type": other}})
        for one in ("vit", "deit")
        for other in ("gpt2", "trocr")
    ),
]


def sizes(config, side, directory):
    """The family's config of a config.json, for pictures of a side."""
    processor = {"image_processor_type": "ViTImageProcessor", "size": side}
    (directory / "preprocessor_config.json").write_text(json.dumps(processor))
    labels = directory / "labels.txt"
    labels.write_text("one\nother\n")
    hf = HfCheckpoint(directory, Fields(config), Generation(), frozenset(), ExportOptions(labels=labels))
    return converter_of(config, has_labels=True).sizes(hf)


@pytest.mark.parametrize(
    ("architecture", "side", "stated"), PICTURES, ids=[f"{row[0]}-{number}" for number, row in enumerate(PICTURES)]
)
def test_what_is_not_stated_is_the_default_of_the_class(architecture, side, stated, tmp_path):
    """The sizes read of a config.json that states nearly nothing are those read of the class's whole config."""
    config_class = getattr(transformers, architecture).config_class
    model_type = {"model_type": config_class.model_type, "architectures": [architecture]}
    whole = json.loads(json.dumps(config_class(**stated).to_dict()))

    assert sizes(whole | model_type, side, tmp_path) == sizes(stated | model_type, side, tmp_path)
