"""Whisper with the weights that OpenAI published, through the served path, against transformers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from google.protobuf import json_format

import weft
from process import ServerProcess
from weft_export.checkpoints.sound import wav_of
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2
from weft_recipes.speech.voices import Synthesiser, Voice
from weft_server.preprocessing.log_mel import spans_of

ROOT = Path(__file__).parents[2]
BASE, TINY = (ROOT / "build" / "real" / name for name in ("whisper-base", "whisper-tiny.en"))
RATE = 16_000
ENGLISH = (
    "The weather is nice today. ",
    "She put the old books on the table, and then she closed the window because it was cold outside. ",
    "We are going to the market to buy bread, apples and a bottle of milk. ",
    "The train to London leaves at half past seven in the morning from platform two. ",
    "He asked me whether I had seen the film about the river, and I said that I had not. ",
)
GERMAN = "Der Zug nach Berlin fährt um acht Uhr ab. Wir haben noch eine halbe Stunde Zeit. "
SPANISH = "La casa es pequeña y tiene un jardín. Mañana vamos a comprar pan y manzanas. "
# What is said, its language, its voice, and how many seconds of it are kept: 1 to 70.
SPOKEN = (
    (ENGLISH[0], "en", "en-us", 1),
    (ENGLISH[1], "en", "en-us", 30),
    (ENGLISH[2] + ENGLISH[3], "en", "en-gb-x-rp", 30),
    (GERMAN, "de", "de", 30),
    (GERMAN * 2, "de", "de+f2", 30),
    (SPANISH, "es", "es", 30),
    ("".join(ENGLISH) * 2, "en", "en-us+f4", 45),
    ("".join(ENGLISH) * 5, "en", "en-us", 70),
)


def recordings():
    """Ten of them: a language each, and samples float32. Two are of nobody who speaks."""
    synthesiser = Synthesiser()
    for text, language, voice, seconds in SPOKEN:
        spoken = synthesiser.speak(text, Voice(voice, 150, 50, 50))
        count = int(len(spoken.samples) * RATE / spoken.rate)
        samples = torch.nn.functional.interpolate(spoken.samples[None, None], size=count, mode="linear")[0, 0]
        yield language, samples[: seconds * RATE]
    yield "en", 0.05 * torch.randn(8 * RATE, generator=torch.Generator().manual_seed(0))
    yield "de", torch.zeros(4 * RATE)


def heard(sound):
    """The samples that a file of 16 bits keeps."""
    return np.frombuffer(wav_of(sound, RATE)[44:], np.int16) / np.float32(32768)


def their_text(directory, bundle, sounds, **asked):
    """What transformers writes greedily of each recording: of all windows that a server cuts it into, joined."""
    processor = transformers.WhisperProcessor.from_pretrained(directory)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(directory).eval()
    spec = json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest()).audio
    for language, sound in sounds:
        samples, texts = heard(sound), []
        named = {"language": language, "task": "transcribe"} if spec.languages else {}
        for span in spans_of(samples, spec):
            window = samples[span.start : span.end]
            features = processor(window, sampling_rate=RATE, return_tensors="pt").input_features
            with torch.inference_mode():
                tokens = model.generate(features, do_sample=False, num_beams=1, **named, **asked)
            texts += processor.batch_decode(tokens, skip_special_tokens=True)
        yield plain("".join(texts))


def plain(text):
    """A text without the white space around it and between windows."""
    return " ".join(text.split())


def served(models, sounds):
    """What a server writes of recordings that are asked together, and again one by one."""
    with ServerProcess(models) as server:
        server.wait_for("ready", timeout=600)
        with weft.Client(server.target, timeout=1200) as client, ThreadPoolExecutor(len(sounds)) as pool:
            asked = [{"audio": wav_of(sound, RATE), "language": language} for language, sound in sounds]
            together = list(pool.map(lambda each: client.transcribe(**each), asked))
            alone = [client.transcribe(**each) for each in asked[:3]]
    assert [each.token_ids for each in alone] == [each.token_ids for each in together[:3]]
    return [plain(each.text) for each in together]


def needs(path):
    """Skip where the weights were not fetched."""
    return pytest.mark.skipif(not path.exists(), reason=f"no {path.relative_to(ROOT)}: make test-real fetches it")


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.timeout(3600)  # the export alone takes minutes on a busy machine
@needs(BASE)
def test_whisper_base_writes_what_transformers_writes(tmp_path):
    """Exported without a flag, and served: ten recordings, three languages, 1 to 70 seconds, noise and silence.

    Each text is that of generate(), greedily. A recording longer than a window is what its windows are.
    """
    bundle, sounds = tmp_path / "models" / "whisper-base" / "1", list(recordings())
    export_checkpoint(BASE, bundle, ExportOptions(no_explain=True, no_score=True))
    expected = list(their_text(BASE, bundle, sounds))

    assert 10 == len(sounds)
    assert expected == served(tmp_path / "models", sounds)


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.timeout(3600)
@needs(TINY)
def test_whisper_of_english_alone_writes_what_transformers_writes(tmp_path):
    """A model without languages or tasks, asked a recording that a person gave as golden request."""
    bundle = tmp_path / "models" / "whisper-tiny" / "1"
    sounds = [("", sound) for language, sound in recordings() if language == "en"]
    golden = tmp_path / "spoken.wav"
    golden.write_bytes(wav_of(sounds[1][1], RATE))
    export_checkpoint(TINY, bundle, ExportOptions(golden=str(golden)))
    assert golden.read_bytes() == (bundle / "golden.wav").read_bytes()
    assert list(their_text(TINY, bundle, sounds)) == served(tmp_path / "models", sounds)
