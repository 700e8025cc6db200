"""Classifiers of pictures of others: our logits are theirs."""

import asyncio
import io
import json
from importlib import import_module

import numpy as np
import pytest
import torch
from hf_models import LOGITS, NUM_LONG, change_config, converted, furthest, made
from picture_kinds import PICTURES
from PIL import Image

from loaded import Loaded, ask
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_proto.v1 import common_pb2

BATCH = 3


def with_processor(directory, config, seed):
    """Write a preprocessor_config.json for a model, and return the height and width of its pictures."""
    vision = config.get("vision_config", config)
    size = vision.get("image_size")
    if size is None or config["model_type"] in ("convnext", "resnet"):
        size = [37, 50] if seed % 2 else 32
    height, width = size if isinstance(size, list) else (size, size)
    channels = vision["num_channels"]
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": height, "width": width},
        "image_mean": [0.4] * channels,
        "image_std": [0.3] * channels,
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(processor))
    return height, width


def made_with_processor(kind, seed, directory):
    """Write a random model and its processor; return it, and random pixels for it."""
    model = made(kind, seed, directory, max_shard_size="20KB" if seed % 2 else "5GB")
    with torch.no_grad():
        # What a model has learned of its pictures, and no random model has.
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
        model.save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    height, width = with_processor(directory, config, seed)
    channels = config.get("vision_config", config)["num_channels"]
    return model, torch.randn(BATCH, channels, height, width)


def check(kind, seed, directory):
    """Hold one random model to transformers."""
    theirs, pixels = made_with_processor(kind, seed, directory)
    ours = converted(directory)

    with torch.inference_mode():
        expected, actual = theirs(pixels).logits, ours.model(pixels)
    assert LOGITS >= furthest(actual, expected)
    assert tuple(theirs.config.id2label.values()) == ours.labels
    assert tuple(ours.model.config.grid) == (ours.image.grid_rows, ours.image.grid_columns)


@pytest.mark.parametrize("kind", PICTURES, ids=lambda kind: kind.name)
def test_a_classifier_answers_what_transformers_answers(kind, tmp_path):
    """Logits within 1e-4, and its labels."""
    check(kind, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, NUM_LONG + 1))
@pytest.mark.parametrize("kind", PICTURES, ids=lambda kind: kind.name)
def test_so_do_random_classifiers(kind, seed, tmp_path):
    """The same law for twenty random configurations."""
    check(kind, seed, tmp_path)


KINDS = {kind.name: kind for kind in PICTURES}
REFUSED = [
    ("vit", {"problem_type": "ranking"}, "problem_type is 'ranking': it is not supported; known are multi_label"),
    ("vit", {"hidden_act": "selu"}, "hidden_act is 'selu': it is not supported; known are gelu"),
    ("vit", {"patch_size": [2, 3]}, r"patch_size is \[2, 3\]: it must be the same"),
    ("vit", {"image_size": 1000}, "image_size is 1000 x 1000, and preprocessor_config.json makes pictures of"),
    ("vit", {"image_size": [1, 2, 3]}, r"image_size is \[1, 2, 3\]: it must be a whole number, or height and width"),
    ("vit", {"use_registers": True}, r"not known here, and that may change the arithmetic: use_registers"),
    ("vit", {"num_hidden_layers": 4}, "weights are missing"),
    ("deit", {"architectures": ["DeiTForMaskedImageModeling"]}, "DeiTForMaskedImageModeling is not supported; of deit"),
    ("beit", {"layer_scale_init_value": 0}, "layer_scale_init_value is 0: it must be more than 0"),
    ("beit", {"use_absolute_position_embeddings": None, "position_embedding_type": "rope"}, "position_embedding_type"),
    ("swin", {"use_absolute_embeddings": True}, "use_absolute_embeddings is True: it is not supported"),
    ("swin", {"qkv_bias": False}, "qkv_bias is False: it is not supported"),
    ("swin", {"mlp_ratio": 2.5}, "mlp_ratio is 2.5: it must be a whole number"),
    ("swin", {"window_size": 50}, "window_size is 50: it is larger than the grid of stage 0"),
    ("swin", {"window_size": 1.5}, "window_size is 1.5: it must be a whole number"),
    ("swin v2", {"qkv_bias": False}, "qkv_bias is False: it is not supported"),
    ("convnext", {"layer_scale_init_value": 0}, "layer_scale_init_value is 0: it must be more than 0"),
    ("convnext", {"num_stages": 7}, "num_stages is 7: it is not supported"),
    ("convnext", {"model_type": "convnextv2"}, "'convnextv2' is not supported; the nearest is 'convnext'"),
    ("resnet", {"hidden_act": "gelu"}, "hidden_act is 'gelu': it is not supported; only 'relu' is"),
    ("resnet", {"layer_type": "wide"}, "layer_type is 'wide': it is not supported"),
    ("clip", {"vision_config": {"image_size": 1000, "rope_theta": 5}}, "image_size is 1000 x 1000"),
    ("clip", {"architectures": ["CLIPTextModel"]}, "CLIPTextModel is not supported; of clip, CLIPForImageClassif"),
]


@pytest.mark.parametrize(("name", "change", "complaint"), REFUSED, ids=[f"{n}: {c}" for n, c, _ in REFUSED])
def test_what_changes_answers_and_is_not_implemented_is_refused_by_name(name, change, complaint, tmp_path):
    """Never a silently different model."""
    made_with_processor(KINDS[name], 0, tmp_path)
    change_config(tmp_path, **change)
    with pytest.raises(CheckpointError, match=complaint):
        converted(tmp_path)


def test_swin_v2_does_not_follow_transformers_into_narrow_grids(tmp_path):
    """It would look at the height alone, and shift windows that fill the width."""
    made_with_processor(KINDS["swin v2"], 0, tmp_path)
    sizes = {"image_size": [48, 24], "patch_size": 4, "window_size": 6}
    change_config(tmp_path, **sizes)
    with_processor(tmp_path, json.loads((tmp_path / "config.json").read_text()), 0)
    with pytest.raises(CheckpointError, match="fills the width of stage 0, 12 x 6"):
        converted(tmp_path)


def test_labels_are_told_apart(tmp_path):
    """ImageNet has two cranes: a label that is there before gets its index. What is no list of labels is refused."""
    theirs, _ = made_with_processor(KINDS["vit"], 0, tmp_path)
    count = theirs.config.num_labels
    named = ["crane", "crane", "crane (1)", *map(str, range(count))][:count]
    change_config(tmp_path, id2label=dict(enumerate(named)))
    assert ("crane", "crane (1)", "crane (1) (2)")[:count] == converted(tmp_path).labels[:3]
    for wrong in ({str(2 * index): "x" for index in range(count)}, {"x": "y"} | dict(enumerate(named[1:]))):
        change_config(tmp_path, id2label=wrong)
        with pytest.raises(CheckpointError, match="id2label must name the labels 0, 1, 2"):
            converted(tmp_path)


def test_without_a_processor_nothing_is_guessed(tmp_path):
    """The file that is missing is named; processor_config.json may take its place, and counts where both are."""
    made_with_processor(KINDS["vit"], 0, tmp_path)
    path = tmp_path / "preprocessor_config.json"
    given = json.loads(path.read_text())
    path.write_text("[")
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json is not JSON"):
        converted(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):
        converted(tmp_path)
    changed = given | {"image_mean": 0.25, "resample": 0}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": changed}))
    path.write_text(json.dumps(given))
    assert {0.25} == set(converted(tmp_path).image.mean)


SERVED = {
    "deit": ("deit", "DeiT", {"size": 41, "crop_size": {}, "do_center_crop": True, "resample": 3}),
    "clip": ("clip", "CLIP", {"size": {"shortest_edge": 37}, "crop_size": {}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip", pytest.param("deit", marks=pytest.mark.long)])
def test_a_served_picture_gets_the_probabilities_of_transformers(name, tmp_path):
    """From an odd picture's file to probabilities: their processor and model in torch, our bundle in our server."""
    theirs, _ = made_with_processor(KINDS[name], 3, tmp_path / "theirs")
    folder, stem, processor = SERVED[name]
    vision = getattr(theirs.config, "vision_config", theirs.config)
    height, width = (vision.image_size,) * 2 if isinstance(vision.image_size, int) else vision.image_size
    channels = vision.num_channels
    processor |= {"crop_size": {"height": height, "width": width}, "image_processor_type": f"{stem}ImageProcessor"}
    processor |= {"image_mean": [0.4] * channels, "image_std": [0.3] * channels}
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(processor))
    export_checkpoint(tmp_path / "theirs", tmp_path / "ours" / "1")

    noise = np.random.default_rng(0).integers(0, 256, (51, 77, channels), np.uint8)
    picture, file = Image.fromarray(noise.squeeze()), io.BytesIO()
    picture.save(file, "PNG")
    module = import_module(f"transformers.models.{folder}.image_processing_pil_{folder}")
    if channels == 1:
        processor["do_convert_rgb"] = False
    pixels = getattr(module, f"{stem}ImageProcessorPil").from_dict(processor)(picture, return_tensors="pt")
    with torch.inference_mode():
        expected = theirs(**pixels).logits.softmax(dim=-1)[0].tolist()

    async def run():
        async with Loaded(tmp_path / "ours" / "1") as model:
            assert model.explainer is not None
            return await ask(model, image=common_pb2.Image(data=file.getvalue()), top_k=len(expected))

    answer = {label.label: label.score for label in asyncio.run(run()).labels}
    assert dict(zip(theirs.config.id2label.values(), expected, strict=True)) == pytest.approx(answer, abs=1e-5)
