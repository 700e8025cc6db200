"""Each key of the files that say how pictures and recordings become numbers: followed, harmless, or refused by name."""

import inspect
import json
import warnings

import numpy as np
import pytest
import transformers
from PIL import Image
from test_image_processor import PROCESSORS, RANDOM, ours, processor_class
from test_sentence_files import attempted
from test_whisper import EXTRACTOR, MELS, RATE, SECONDS, made_whisper, tones
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from weft_export.converters.convert import convert
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.image_processor import KIND_OF_MODEL, KINDS, read_image_spec
from weft_export.converters.keys import Only
from weft_export.converters.processor_keys import IMAGE_KEYS, PROCESSOR_KEYS, SOUND_KEYS, read_processor
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions

PICTURES = [Image.fromarray(RANDOM.integers(0, 256, (*sides, 3), np.uint8)) for sides in ((37, 53), (60, 33))]
SIDES = [{"height": 24, "width": 30}, {"height": 24}, {"height": 24, "width": None}, {"height": 24.0, "width": 30.0}]
SIDES += [{"height": 0, "width": 0}, {"height": "24", "width": 30}, {"height": 24, "width": 30, "depth": 1}]
SIDES += [{"shortest_edge": 20}, {"shortest_edge": 0}, {"longest_edge": 40}, {"shortest_edge": 20, "longest_edge": 40}]
SIDES += [{"max_height": 24, "max_width": 30}, {"min_pixels": 100, "max_pixels": 600}]
NUMBERS = [True, False, None, 0, 1, 2, 3, -1, 24, 30, 5000, 0.0, 0.5, 0.875, 1.5, 24.0, 1 / 255, 1 / 127.5]
LISTS = [[], [24], [24, 30], [24, 30, 5], [0.5], [0.1, 0.2, 0.3], ["a"], {}]
WORDS = ["", "24", "bilinear", "left", "right", "channels_first", "channels_last", "none", "np", "cpu", "cuda"]
VALUES = [*NUMBERS, *LISTS, *WORDS, *SIDES]
SOUNDS = [0.1, 12, 100, 400, 401, 512, 8000, 16000, 16000.0, "WhisperFeatureExtractor"]


@pytest.mark.parametrize("stem", PROCESSORS)
def test_each_key_of_a_class_of_pictures_is_known(stem):
    """A newer transformers that reads more makes this fail, and one that saves more."""
    of_class = processor_class(stem)
    saved = json.loads(of_class().to_json_string())
    assert set() == {*of_class.valid_kwargs.__annotations__, *saved} - IMAGE_KEYS.keys()


def test_each_key_of_a_recordings_class_is_known():
    """What it takes, and what it saves."""
    of_class = transformers.WhisperFeatureExtractor
    taken = {*inspect.signature(of_class).parameters} - {"kwargs"}
    assert set() == {*taken, *json.loads(of_class().to_json_string())} - SOUND_KEYS.keys()


@pytest.mark.parametrize("name", ["CLIPProcessor", "BlipProcessor", "TrOCRProcessor", "WhisperProcessor"])
def test_each_key_of_a_processor_is_known(name):
    """What it is made of, and what else it is made with."""
    of_class = getattr(transformers, name)
    taken = {*inspect.signature(of_class).parameters} - {"kwargs"}
    assert set() == {*of_class.get_attributes(), *taken} - PROCESSOR_KEYS.keys()


@pytest.mark.parametrize("model_type", sorted(KIND_OF_MODEL))
def test_without_a_class_it_is_the_one_of_transformers(model_type):
    """Transformers has none for an encoder alone; it is the whole model's. Nor for a mixture; it is the dense model's.

    BiT's does all that CLIP's does.
    """
    named = IMAGE_PROCESSOR_MAPPING_NAMES[model_type.removesuffix("_vision_model").removesuffix("_moe")]["torchvision"]
    assert KINDS[named.removesuffix("ImageProcessor")] is KIND_OF_MODEL[model_type]


def test_the_sides_of_a_class_are_no_lone_number():
    """default_to_square says what a number in the file is; what the class has is height and width already."""
    spec = read_image_spec({"image_processor_type": "DeiTImageProcessor", "default_to_square": False}, "deit", 3)
    assert (0, 256, 256) == (spec.shortest_edge, spec.resize_height, spec.resize_width)


@pytest.mark.parametrize(("name", "value"), [("image_std", 0), ("image_std", [0.5, -0.5, 0.5]), ("image_mean", 2000)])
def test_a_number_that_no_bundle_may_have_is_refused_at_once(name, value):
    """By the file's name for it, and not after the export."""
    with pytest.raises(CheckpointError, match=rf"^preprocessor_config.json: {name} must be from "):
        read_image_spec({name: value}, "vit", 3)


@pytest.mark.parametrize("key", ["auto_map", "chat_template", "image_seq_length", "processor_class", "tokenizer"])
@pytest.mark.parametrize("value", ["CLIPProcessor", 7, {"size": 9}, ["a"], True], ids=str)
def test_beside_a_part_a_processors_keys_change_nothing(key, value, tmp_path):
    """Of processor_config.json: pixels are as AutoImageProcessor makes them, which has read the same file."""
    part = {"image_processor_type": "ViTImageProcessor", "size": {"height": 24, "width": 30}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": part, key: value}))
    hf = HfCheckpoint(tmp_path, Fields({}), Generation(), frozenset())
    pixels = [ours(read_processor(hf, "image_processor")[1], each)[0] for each in PICTURES]
    theirs = attempted(lambda: their_pixels(transformers.AutoImageProcessor.from_pretrained(tmp_path)))
    assert [] == hf.fields.notes
    assert theirs is None or all(np.allclose(*pair, atol=1e-5) for pair in zip(theirs, pixels, strict=True))


def their_pixels(processor):
    """What a processor makes of the pictures."""
    with np.errstate(all="ignore"):
        return [np.array(processor(each, return_tensors="np")["pixel_values"][0]) for each in PICTURES]


def bases(stem):
    """What a file says beside the key: sizes as objects and as numbers, cutting, padding."""
    edge = stem in ("ConvNext", "CLIP", "Bit")
    small = {"size": {"shortest_edge": 36} if edge else {"height": 36, "width": 36}, "crop_size": 20}
    yield from (small, small | {"do_center_crop": True}, small | {"do_center_crop": False}, small | {"do_pad": True})
    yield from ({"size": 36, "crop_size": 20, "default_to_square": square} for square in (True, False))


def fault_of_pictures(stem, base, key, value):
    """What is wrong with how we read a file, or the file that the library makes of it; None if nothing is."""
    given = {"image_processor_type": f"{stem}ImageProcessor", **base, key: value}
    processor = attempted(lambda: processor_class(stem).from_dict(json.loads(json.dumps(given))))
    theirs = processor and attempted(lambda: their_pixels(processor))
    if theirs is None:
        return None
    for file in (given, json.loads(processor.to_json_string())):
        try:
            actual = [ours(file, picture) for picture in PICTURES]
        except CheckpointError as error:
            if not any(name in str(error) for name in (key, *base)):
                return f"refused without its name: {error}"
            continue
        for expected, (pixels, spec) in zip(theirs, actual, strict=True):
            if expected.shape != pixels.shape or not np.allclose(expected, pixels, atol=1e-5 / min(1, *spec.std)):
                return "other pixels"
    return None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stem", PROCESSORS)
def test_a_key_of_a_class_of_pictures_is_followed_or_refused(stem):
    """Never silently other pixels, whatever one key says."""
    keys = sorted(IMAGE_KEYS.keys() - {"image_processor_type", "feature_extractor_type"})
    assert [] == [
        (base, key, value, found)
        for base in bases(stem)
        for key in keys
        for value in VALUES
        if (found := fault_of_pictures(stem, base, key, value))
    ]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """A random Whisper of two languages."""
    directory = tmp_path_factory.mktemp("whisper")
    made_whisper(directory)
    return directory


def heard(directory):
    """What our reading says of recordings."""
    return convert(directory, ExportOptions(), filled=False).checkpoint.audio


# Of each key that can be followed at one value only, another value.
OTHERWISE = {
    "feature_extractor_type": "SpeechT5FeatureExtractor",
    "sampling_rate": 8000,
    "padding_value": 0.5,
    "padding_side": "left",
    "dither": 0.1,
}


def test_each_key_with_one_value_is_tried():
    """The list above is the table's."""
    assert [name for name, row in SOUND_KEYS.items() if isinstance(row, Only)] == list(OTHERWISE)


@pytest.mark.parametrize("key", OTHERWISE)
def test_what_no_bundle_does_with_recordings_is_refused(key, whisper):
    """The library would hear something else, such as silence before a recording and not behind it."""
    (whisper / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR | {key: OTHERWISE[key]}))
    with pytest.raises(CheckpointError, match=rf"preprocessor_config\.json: {key} is .*, which cannot be"):
        heard(whisper)


@pytest.mark.parametrize(
    ("key", "value"), [("n_fft", 2), ("n_fft", 401), ("n_fft", 8192), ("feature_size", 2), ("hop_length", 4097)]
)
def test_a_size_that_no_bundle_may_have_is_refused_by_its_key(key, value, whisper):
    """It is the file's own key, and not the field of the bundle that it would become."""
    (whisper / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR | {key: value}))
    with pytest.raises(CheckpointError, match=rf"preprocessor_config\.json: {key}"):
        heard(whisper)


def test_filters_that_an_older_library_saved_change_nothing(whisper):
    """Its class makes them anew of the other keys."""
    (whisper / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR | {"mel_filters": [[0.0] * 201] * MELS}))
    assert MELS == heard(whisper).num_mels


@pytest.mark.parametrize(
    ("nested", "said"),
    [
        ({"feature_extractor": EXTRACTOR | {"dither": 0.5}}, "processor_config.json: feature_extractor: dither is 0.5"),
        ({"audio_processor": EXTRACTOR | {"dither": 0.5}}, "processor_config.json: audio_processor: dither is 0.5"),
        ({"feature_extractor": None, "audio_processor": {"dither": 0.5}}, None),
        ({"feature_extractor": EXTRACTOR, "audio_processor": {"dither": 0.5}}, None),
    ],
)
def test_of_two_files_the_library_reads_the_nested_one(nested, said, whisper):
    """By either of two names, the first of which counts; null is as if the file had no part."""
    (whisper / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))
    (whisper / "processor_config.json").write_text(json.dumps(nested))
    extractor = transformers.AutoFeatureExtractor.from_pretrained(whisper)
    assert (0.0 if said is None else 0.5) == extractor.dither
    try:
        if said is None:
            assert MELS == heard(whisper).num_mels
        else:
            with pytest.raises(CheckpointError, match=said):
                heard(whisper)
    finally:
        (whisper / "processor_config.json").unlink()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("key", sorted(SOUND_KEYS))
def test_a_key_of_a_recordings_class_is_followed_or_refused(key, whisper):
    """Never silently other energies. Which tests/server holds to the class, by what a bundle says of them."""
    path = whisper / "preprocessor_config.json"
    sounds = [tones(SECONDS * share, 0).numpy().astype(np.float32) for share in (0.6, 0.9)]

    def energies(given):
        path.write_text(json.dumps(given))
        extractor = transformers.AutoFeatureExtractor.from_pretrained(whisper)
        return [extractor(each, sampling_rate=RATE, return_tensors="np").input_features for each in sounds]

    faults = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, spec = energies(EXTRACTOR), heard(whisper)
        for value in [*NUMBERS, *SOUNDS, *WORDS, *LISTS]:
            theirs = attempted(lambda value=value: energies(EXTRACTOR | {key: value}))
            if theirs is None:
                continue
            same = all(np.array_equal(one, other) for one, other in zip(theirs, expected, strict=True))
            try:
                is_right = same or heard(whisper) != spec
            except CheckpointError as error:
                is_right = key in str(error) or "max_source_positions" in str(error)
            if not is_right:
                faults.append(value)
    assert [] == faults
