"""Parakeet with a CTC head: our logits and texts are theirs, whatever the recording's length, alone and in a crowd."""

import asyncio
import io
import json
import random

import numpy as np
import pytest
import soundfile
import torch
import transformers
from hf_models import LOGITS, change_config, converted, furthest, made_model
from tokenizers import AddedToken, Tokenizer, decoders, models

from few import few_of
from loaded import Loaded, ask
from weft_export.checkpoints.sound import mel_frames, wav_of
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.preprocessing.waveform import MelFrames

ARCHITECTURE = "ParakeetForCTC"
RATE, HOP = 16000, 160
PIECES = ["<unk>", "\u2581", *(f"\u2581{each}" for each in "abcd"), *"efghi", "\u2581jk", "l\u2581m"]
KINDS = {
    "parakeet": {},
    "parakeet plain": {
        "attention_bias": False,
        "convolution_bias": False,
        "scale_input": False,
        "subsampling_factor": 4,
        "conv_kernel_size": 3,
    },
    "parakeet odd": {"hidden_act": "relu", "num_mel_bins": 48, "subsampling_factor": 16},
}
# Of one frame, of two, and on both sides of where one label more begins.
LENGTHS = (320, 1439, 1440, 8000, 24321)


def made_parakeet(directory, name="parakeet", seed=0):
    """Write a random model with its processor as transformers saves them; return both."""
    more = KINDS[name]
    rng = random.Random(seed)
    heads = rng.choice([2, 3])
    encoder = {
        "hidden_size": heads * 16,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([48, 66]),
        "conv_kernel_size": 5,
        "subsampling_conv_channels": 12,
        "num_mel_bins": 80,
        **more,
    }
    torch.manual_seed(seed)
    config = transformers.ParakeetCTCConfig(
        vocab_size=len(PIECES) + 1,
        pad_token_id=len(PIECES),
        encoder_config=transformers.ParakeetEncoderConfig(**encoder),
    )
    model = made_model(transformers.ParakeetForCTC, config, directory)
    # As the norms of a trained model: not 0 and 1.
    for part, tensor in model.state_dict().items():
        if "running_mean" in part:
            tensor.normal_(std=0.3)
        elif "running_var" in part:
            tensor.uniform_(0.5, 2)
        elif part.endswith(("bias_u", "bias_v")):
            tensor.normal_(std=0.5)
    model.save_pretrained(directory)
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(PIECES)}, [], unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<pad>", normalized=False)])
    processor = transformers.ParakeetProcessor(
        feature_extractor=transformers.ParakeetFeatureExtractor(feature_size=encoder["num_mel_bins"]),
        tokenizer=transformers.ParakeetTokenizer(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>"),
    )
    processor.save_pretrained(directory)
    return model.eval(), transformers.AutoProcessor.from_pretrained(directory)


def noise(num_samples, seed=0):
    """A WAV of noise that swells, and its samples."""
    generator = torch.Generator().manual_seed(seed)
    file = wav_of(0.2 * torch.randn(num_samples, generator=generator) * torch.linspace(0.2, 1, num_samples), RATE)
    samples, _ = soundfile.read(io.BytesIO(file), dtype="float32")
    return file, samples


def their_labels(model, processor, samples):
    """What theirs says of each moment of a recording: logits, padding left out."""
    given = processor(samples, sampling_rate=RATE, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**given).logits[0]
    return logits[: int(model._get_subsampling_output_length(given["attention_mask"].sum(-1)))]


@pytest.mark.parametrize("name", few_of(KINDS, ("parakeet", "parakeet plain")))
def test_it_says_of_each_moment_what_transformers_says(name, tmp_path):
    """Logits within 1e-4 of the same energies, and as many as theirs."""
    theirs, processor = made_parakeet(tmp_path, name)
    ours = converted(tmp_path)
    for num_samples in LENGTHS:
        samples = noise(num_samples, num_samples)[1]
        given = processor(samples, sampling_rate=RATE, return_tensors="pt")
        heard = given["input_features"][:, : int(given["attention_mask"].sum())]
        with torch.inference_mode():
            actual = ours.model(heard)
        expected = their_labels(theirs, processor, samples)[None]
        assert expected.shape == actual.shape
        assert LOGITS >= furthest(actual, expected)


def test_energies_are_those_of_its_extractor(tmp_path):
    """Of the exporter and of the server. Both sum in float64, and theirs in float32: within 1e-3 of numbers of 3."""
    made_parakeet(tmp_path)
    spec, extractor = converted(tmp_path).audio, transformers.ParakeetFeatureExtractor.from_pretrained(tmp_path)
    for num_samples in LENGTHS:
        samples = noise(num_samples, num_samples)[1]
        expected = extractor(samples, sampling_rate=RATE, return_tensors="np")["input_features"][0]
        expected = expected[: num_samples // HOP]
        ours = mel_frames(torch.from_numpy(samples), spec).numpy()
        assert np.abs(expected - ours).max() < 1e-3
        assert np.abs(ours - MelFrames(spec).energies(samples)).max() < 1e-5


def test_a_single_frame_is_heard(tmp_path):
    """Theirs divides by zero, and says that all is nan. Here its deviation is 0."""
    made_parakeet(tmp_path)
    spec = converted(tmp_path).audio
    assert spec.ctc.min_samples == HOP
    assert not mel_frames(torch.from_numpy(noise(HOP)[1]), spec).any()
    assert not MelFrames(spec).energies(noise(HOP)[1]).any()


@pytest.mark.slow
def test_a_recording_is_served_as_transformers_hears_it(tmp_path):
    """Texts of recordings asked at once, to the bit those of each alone. Words are the text's, in their order."""
    directory, bundle = tmp_path / "parakeet", tmp_path / "models" / "model" / "1"
    directory.mkdir()
    theirs, processor = made_parakeet(directory, seed=4)
    export_checkpoint(directory, bundle)
    recordings = [noise(size, index) for index, size in enumerate((16000, 16000, 1600, 24321))]

    async def run():
        async with Loaded(bundle) as model:
            requests = [{"audio": common_pb2.Audio(data=file)} for file, _ in recordings]
            together = await asyncio.gather(*(ask(model, **each, return_scores=True) for each in requests))
            return together, [await ask(model, **each, return_scores=True) for each in requests]

    together, alone = asyncio.run(run())
    assert [each.completion.token_log_probs for each in alone] == [each.completion.token_log_probs for each in together]
    assert [each.completion.text for each in alone] == [each.completion.text for each in together]
    for (_, samples), response in zip(recordings, together, strict=True):
        logits = their_labels(theirs, processor, samples)
        best = logits.argmax(dim=-1)
        text = processor.batch_decode(best[None])[0]
        assert text.strip() == response.completion.text
        assert [each for each in text.split(" ") if each] == response.completion.text.split()
        ends = [end for each in response.words for end in (each.start_s, each.end_s)]
        assert sorted(ends) == ends
        assert all(0 <= each <= len(samples) / RATE + 1e-6 for each in ends)
        # A label with a mark in it has a blank in its word.
        assert "".join(text.split()) == "".join(each.text.replace(" ", "") for each in response.words)
    said = [each.text for response in together for each in response.words]
    assert len(set(said)) > 3, said


REFUSED = {
    "subsampling_factor": (6, "subsampling_factor"),
    "subsampling_conv_stride": (3, "subsampling_conv_stride"),
    "conv_kernel_size": (4, "convolution_kernel must be odd"),
    "num_mel_bins": (64, "num_mel_bins is 64"),
    "attn_config": ({"window": 3}, "attn_config"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(field, tmp_path):
    """Of the encoder in config.json."""
    made_parakeet(tmp_path)
    value, named = REFUSED[field]
    encoder = json.loads((tmp_path / "config.json").read_text())["encoder_config"]
    change_config(tmp_path, encoder_config=encoder | {field: value})
    with pytest.raises(CheckpointError, match=named):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("processor_config.json", {"hop_length": 500}, "hop_length"),
        ("processor_config.json", {"n_fft": 513}, "n_fft"),
        ("processor_config.json", {"preemphasis": 2}, "preemphasis"),
        ("processor_config.json", {"feature_extractor_type": "WhisperFeatureExtractor"}, "feature_extractor_type"),
        ("processor_config.json", {"sampling_rate": 96000}, "sampling_rate"),
        ("tokenizer_config.json", {"pad_token": "[PAD]"}, "pad_token"),
        ("tokenizer.json", {"decoder": {"type": "WordPiece"}}, "its decoder is 'WordPiece'"),
        ("tokenizer.json", {"decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"}}, "never"),
        ("tokenizer.json", {"added_tokens": []}, "says nothing of label"),
    ],
)
def test_files_that_cannot_be_followed_are_refused_by_name(file, change, named, tmp_path):
    """Of those that transformers saves beside the weights."""
    made_parakeet(tmp_path)
    path = tmp_path / file
    whole = json.loads(path.read_text())
    whole.get("feature_extractor", whole).update(change)
    path.write_text(json.dumps(whole))
    with pytest.raises(CheckpointError, match=named):
        convert(tmp_path, ExportOptions(), filled=False)
