"""wav2vec 2.0 and HuBERT with a CTC head: our logits, text and times are theirs, alone and in a crowd."""

import asyncio
import inspect
import io
import json
import random

import numpy as np
import pytest
import soundfile
import torch
import transformers
from hf_models import LOGITS, change_config, converted, furthest, made_model
from safetensors.torch import load_file, save_file

from few import few_of
from loaded import Loaded, ask
from weft_export.checkpoints.sound import wav_of
from weft_export.converters.convert import convert
from weft_export.converters.ctc_files import WAVEFORM_KEYS
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

RATE = 16000
# Strides of 80 samples: 200 labels a second.
KERNELS, STRIDES = [10, 3, 4], [5, 4, 4]
HOP = 80
VOCAB = {token: index for index, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONI'"])}
HUBERT = "HubertForCTC"
KINDS = {
    "wav2vec2": ("Wav2Vec2ForCTC", {}),
    "wav2vec2 large": ("Wav2Vec2ForCTC", {"feat_extract_norm": "layer", "do_stable_layer_norm": True}),
    "wav2vec2 biased": ("Wav2Vec2ForCTC", {"feat_extract_norm": "layer", "conv_bias": True}),
    "wav2vec2 odd": (
        "Wav2Vec2ForCTC",
        {"num_conv_pos_embeddings": 9, "conv_bias": True, "layer_norm_eps": 0.1, "hidden_act": "relu"},
    ),
    "hubert": (HUBERT, {}),
    "hubert large": (HUBERT, {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}),
    "hubert plain": (HUBERT, {"feat_proj_layer_norm": False}),
}


def made_ctc(directory, name="wav2vec2", seed=0, **tokenizer):
    """Write a random model with its processor as transformers saves them; return both."""
    architecture, more = KINDS[name]
    rng = random.Random(seed)
    heads = rng.choice([2, 3])
    model_class = getattr(transformers, architecture)
    torch.manual_seed(seed)
    config = model_class.config_class(
        vocab_size=len(VOCAB),
        hidden_size=heads * 8,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=rng.choice([24, 33]),
        conv_dim=[12, 16, 20],
        conv_kernel=KERNELS,
        conv_stride=STRIDES,
        **{"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": heads} | more,
    )
    model = made_model(model_class, config, directory)
    (directory / "vocab.json").write_text(json.dumps(VOCAB))
    processor = transformers.Wav2Vec2Processor(
        feature_extractor=transformers.Wav2Vec2FeatureExtractor(return_attention_mask=more.get("conv_bias", False)),
        tokenizer=transformers.Wav2Vec2CTCTokenizer(directory / "vocab.json", **tokenizer),
    )
    processor.save_pretrained(directory)
    return model, transformers.Wav2Vec2Processor.from_pretrained(directory)


def noise(num_samples, seed=0):
    """A WAV of noise that swells, and its samples."""
    generator = torch.Generator().manual_seed(seed)
    file = wav_of(0.2 * torch.randn(num_samples, generator=generator) * torch.linspace(0.2, 1, num_samples), RATE)
    samples, _ = soundfile.read(io.BytesIO(file), dtype="float32")
    return file, samples


def their_logits(model, processor, samples):
    """What theirs says of each moment of a recording that is heard alone."""
    with torch.inference_mode():
        return model(**processor(samples, sampling_rate=RATE, return_tensors="pt")).logits


def their_answer(model, processor, samples, start_s=0.0):
    """The text and the words that their greedy decoding gives."""
    best = their_logits(model, processor, samples).argmax(dim=-1)
    found = processor.batch_decode(best, output_word_offsets=True)
    times = [(each["start_offset"] * HOP / RATE, each["end_offset"] * HOP / RATE) for each in found.word_offsets[0]]
    words = [each["word"] for each in found.word_offsets[0]]
    return found.text[0], [
        (word, pytest.approx(start_s + start, abs=1e-4), pytest.approx(start_s + end, abs=1e-4))
        for word, (start, end) in zip(words, times, strict=True)
    ]


def answer_of(response):
    """The same of a response."""
    return response.completion.text, [(each.text, each.start_s, each.end_s) for each in response.words]


@pytest.mark.parametrize("name", few_of(KINDS, ("wav2vec2", "wav2vec2 odd", "hubert large", "hubert plain")))
def test_it_says_of_each_moment_what_transformers_says(name, tmp_path):
    """Logits within 1e-4, from one label up."""
    theirs, processor = made_ctc(tmp_path, name)
    ours = converted(tmp_path)
    for num_samples in (ours.audio.ctc.min_samples, 1111, 8000):
        samples = noise(num_samples, num_samples)[1]
        heard = processor(samples, sampling_rate=RATE, return_tensors="pt").input_values
        with torch.inference_mode():
            actual = ours.model(heard)
        assert LOGITS >= furthest(actual, their_logits(theirs, processor, samples))


def test_older_names_of_the_kernel_of_positions_are_read(tmp_path):
    """weight_g and weight_v, as every checkpoint on the hub from before 2024 has them; without either it is refused."""
    made_ctc(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    expected = converted(tmp_path).model.positions.convolution.weight
    stem = "wav2vec2.encoder.pos_conv_embed.conv."
    for new, old in (("original0", "weight_g"), ("original1", "weight_v")):
        weights[stem + old] = weights.pop(f"{stem}parametrizations.weight.{new}")
    save_file(weights, path, {"format": "pt"})
    assert torch.equal(expected, converted(tmp_path).model.positions.convolution.weight)

    del weights[f"{stem}weight_g"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match="neither weight_g"):
        converted(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_labels_say_what_their_tokenizer_says(seed, tmp_path):
    """With tokens beside the vocabulary, in the files of version 5 and in those from before it."""
    made_ctc(tmp_path, seed=seed)
    if seed:
        vocab = {token: index for index, token in enumerate(["[PAD]", "[UNK]", "|", *"etaoni'x"])}
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": None, "eos_token": "</s>"}
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "Wav2Vec2CTCTokenizer", "do_lower_case": seed == 2, **special})
        )
        (tmp_path / "added_tokens.json").write_text(json.dumps({"</s>": len(vocab)}))
    checkpoint = converted(tmp_path)
    theirs = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path)
    assert theirs.convert_ids_to_tokens(list(range(len(VOCAB)))) == list(checkpoint.labels)
    assert theirs.pad_token_id == checkpoint.audio.ctc.blank_id
    assert theirs.do_lower_case == checkpoint.audio.ctc.lower_case


@pytest.mark.slow
def test_a_recording_is_served_as_transformers_hears_it(tmp_path):
    """Text and words of four files, asked at once; of one that is longer than a window, those of its windows."""
    directory, bundle = tmp_path / "wav2vec2", tmp_path / "models" / "model" / "1"
    directory.mkdir()
    theirs, processor = made_ctc(directory, "hubert", 1, do_lower_case=True, replace_word_delimiter_char="_")
    export_checkpoint(directory, bundle)
    recordings = [noise(size, index) for index, size in enumerate((8000, 8000, 900, 12345))]

    async def run():
        async with Loaded(bundle) as model:
            requests = [{"audio": common_pb2.Audio(data=file)} for file, _ in recordings]
            together = await asyncio.gather(*(ask(model, **each, return_scores=True) for each in requests))
            alone = [await ask(model, **each, return_scores=True) for each in requests]
            model.manifest.audio.num_frames = 100  # half a second
            return together, alone, await ask(model, **requests[-1])

    together, alone, long = asyncio.run(run())
    assert all(len(each.words) > 1 for each in together)
    for (_, samples), response in zip(recordings, together, strict=True):
        assert their_answer(theirs, processor, samples) == answer_of(response)
        best = their_logits(theirs, processor, samples)[0].log_softmax(dim=-1).amax(dim=-1)
        assert {True} == {any(abs(best - each) < 1e-4) for each in response.completion.token_log_probs}
    assert [each.completion.token_log_probs for each in alone] == [each.completion.token_log_probs for each in together]
    assert [answer_of(each) for each in alone] == [answer_of(each) for each in together]

    samples = recordings[-1][1]
    words = []
    assert len(long.segments) > 1
    for segment in long.segments:
        part = samples[round(segment.start_s * RATE) : round(segment.end_s * RATE)]
        text, more = their_answer(theirs, processor, part, segment.start_s)
        assert text == segment.text
        words += more
    assert words == answer_of(long)[1]
    assert len(samples) / RATE == pytest.approx(long.segments[-1].end_s) == pytest.approx(long.duration_s)


REFUSED = {
    "add_adapter": (True, "add_adapter"),
    "adapter_attn_dim": (16, "adapter_attn_dim"),
    "feat_extract_norm": ("batch", "feat_extract_norm"),
    "num_feat_extract_layers": (7, "num_feat_extract_layers"),
    "architectures": (["Wav2Vec2ForPreTraining"], "Wav2Vec2ForPreTraining is not supported"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(field, tmp_path):
    """Of config.json."""
    made_ctc(tmp_path)
    value, named = REFUSED[field]
    change_config(tmp_path, **{field: value})
    with pytest.raises(CheckpointError, match=named):
        convert(tmp_path, ExportOptions(), filled=False)


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("tokenizer_config.json", {"target_lang": "eng"}, "target_lang"),
        ("tokenizer_config.json", {"tokenizer_class": "Wav2Vec2PhonemeCTCTokenizer"}, "tokenizer_class"),
        ("tokenizer_config.json", {"pad_token": "[PAD]", "added_tokens_decoder": {}}, "pad_token"),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "do_lower_case"),
        ("tokenizer_config.json", {"replace_word_delimiter_char": 7}, "replace_word_delimiter_char"),
        ("processor_config.json", {"feature_size": 2}, "feature_size"),
        ("processor_config.json", {"sampling_rate": 96000}, "sampling_rate"),
        ("processor_config.json", {"do_normalize": 1}, "do_normalize"),
        ("processor_config.json", {"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, "feature_extractor_type"),
    ],
)
def test_files_that_cannot_be_followed_are_refused_by_name(file, change, named, tmp_path):
    """Of those that transformers saves beside the weights."""
    made_ctc(tmp_path)
    path = tmp_path / file
    whole = json.loads(path.read_text())
    whole.get("feature_extractor", whole).update(change)
    path.write_text(json.dumps(whole))
    with pytest.raises(CheckpointError, match=named):
        convert(tmp_path, ExportOptions(), filled=False)


def test_each_key_of_a_recordings_class_is_known():
    """What it takes, and what it saves."""
    of_class = transformers.Wav2Vec2FeatureExtractor
    taken = {*inspect.signature(of_class).parameters} - {"kwargs"}
    assert set() == {*taken, *json.loads(of_class().to_json_string())} - WAVEFORM_KEYS.keys()


def test_a_label_that_says_nothing_is_refused(tmp_path):
    """The vocabulary has fewer than the model."""
    made_ctc(tmp_path)
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    del vocab["'"]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(CheckpointError, match=r"vocab\.json says nothing of label 11"):
        convert(tmp_path, ExportOptions(), filled=False)


def test_what_is_not_followed_is_told(tmp_path):
    """A language model beside the weights, spaces before marks, a key that nobody knows."""
    made_ctc(tmp_path)
    (tmp_path / "language_model").mkdir()
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clean_up_tokenization_spaces": True, "new": 9}))
    notes = " ".join(convert(tmp_path, ExportOptions(), filled=False).notes)
    assert all(each in notes for each in ("language_model", "clean_up_tokenization_spaces is true", "new (9)")), notes


def test_a_normalised_recording_is_theirs_to_the_bit(tmp_path):
    """So are the samples of one that is not."""
    _, processor = made_ctc(tmp_path)
    file, samples = noise(5000)
    path = tmp_path / "processor_config.json"
    for normalizes in (True, False):
        path.write_text(
            json.dumps({"feature_extractor": processor.feature_extractor.to_dict() | {"do_normalize": normalizes}})
        )
        extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(tmp_path)
        expected = np.array(extractor(samples, sampling_rate=RATE).input_values[0])
        assert np.array_equal(expected, converted(tmp_path).read_media("a", file).numpy())
