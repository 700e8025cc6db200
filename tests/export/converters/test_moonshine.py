"""Moonshine: our logits, tokens and texts are theirs, of recordings of any length, alone and in a crowd."""

import asyncio
import io
import json

import pytest
import soundfile
import torch
import transformers
from hf_models import (
    END,
    LOGITS,
    PAD,
    VOCAB,
    Kind,
    change_config,
    converted,
    furthest,
    greedy,
    made,
    their_greedy,
    token_rows,
)

from loaded import Loaded, ask
from weft_export.checkpoints.sound import wav_of
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import as_asked, export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.errors import RequestError

RATE, HOP, LEAST = 16000, 384, 895
START = 2
NEW_TOKENS = 40


def draw(rng):
    """Draw a Moonshine: heads of 36 or 52 numbers as released, and of 16, which need no padding."""
    heads = rng.choice([1, 2])
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * rng.choice([36, 52, 16]),
        "intermediate_size": rng.choice([40, 33]),
        "encoder_num_hidden_layers": rng.choice([1, 2]),
        "decoder_num_hidden_layers": rng.choice([1, 2]),
        "encoder_num_attention_heads": heads,
        "decoder_num_attention_heads": heads,
        "pad_head_dim_to_multiple_of": rng.choice([None, 8]),
        "encoder_hidden_act": rng.choice(["gelu", "relu"]),
        "decoder_hidden_act": rng.choice(["silu", "gelu"]),
        "attention_bias": rng.choice([True, False]),
        "tie_word_embeddings": rng.choice([True, False]),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": rng.choice([10000.0, 500.0]),
            "partial_rotary_factor": rng.choice([0.9, 0.5]),
        },
        "max_position_embeddings": 64,
        "bos_token_id": START,
        "decoder_start_token_id": START,
        "eos_token_id": END,
        "pad_token_id": PAD,
    }


MOONSHINE = Kind("moonshine", "MoonshineForConditionalGeneration", draw)


def made_moonshine(directory, seed=0):
    """Write a random Moonshine with its feature extractor; return theirs."""
    theirs = made(MOONSHINE, seed, directory)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=False).save_pretrained(directory)
    return theirs


def noise(num_samples, seed=0):
    """A WAV of noise that swells, and its samples."""
    generator = torch.Generator().manual_seed(seed)
    file = wav_of(0.2 * torch.randn(num_samples, generator=generator) * torch.linspace(0.2, 1, num_samples), RATE)
    samples, _ = soundfile.read(io.BytesIO(file), dtype="float32")
    return file, torch.from_numpy(samples)


def their_tokens(theirs, samples, **settings):
    """What generate() writes of a recording."""
    return their_greedy(theirs, {"input_values": samples[None]}, NEW_TOKENS, **settings)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(each, marks=pytest.mark.long) for each in range(3, 20))])
def test_it_says_what_transformers_says(seed, tmp_path):
    """Logits of a whole target within 1e-4, from one place of the memory up."""
    theirs = made_moonshine(tmp_path, seed)
    ours = converted(tmp_path)
    assert LEAST == ours.audio.min_samples
    assert HOP == ours.audio.hop_size
    for num_samples, tokens in zip((LEAST, 5000, 16001), token_rows(VOCAB, (3, 17, 30), seed), strict=True):
        target, (_, samples) = torch.tensor([[START, *tokens]]), noise(num_samples, num_samples)
        with torch.inference_mode():
            expected = theirs(input_values=samples[None], decoder_input_ids=target).logits
            assert LOGITS >= furthest(ours.model.decode(target, samples[None]), expected)


@pytest.mark.slow
def test_a_recording_is_served_as_transformers_hears_it(tmp_path):
    """The greedy tokens of recordings that were asked at once; to the bit those of each alone."""
    directory, bundle = tmp_path / "moonshine", tmp_path / "models" / "model" / "1"
    directory.mkdir()
    theirs = made_moonshine(directory, 1)
    export_checkpoint(directory, bundle, ExportOptions(max_tokens=64))
    recordings = [noise(size, index) for index, size in enumerate((8000, 8000, 8001, LEAST, 16000, 21111))]

    async def run():
        async with Loaded(bundle, slots=8) as model:
            plain = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS)
            requests = [
                {"audio": common_pb2.Audio(data=file), "decoding": plain, "return_scores": True}
                for file, _ in recordings
            ]
            together = await asyncio.gather(*(ask(model, **each) for each in requests))
            alone = [await ask(model, **each) for each in requests]
            told = await ask(model, **requests[0], explain={})
            for refused in ({"language": "en"}, {"to_english": True}, {"timestamps": True}):
                with pytest.raises(RequestError) as error:
                    await ask(model, **requests[0], **refused)
                assert [error.value.field] == list(refused)
            return together, alone, told

    together, alone, told = asyncio.run(run())
    expected = [their_tokens(theirs, samples) for _, samples in recordings]
    assert len({tuple(tokens) for tokens in expected}) == len(recordings)
    for tokens, response in zip(expected, together, strict=True):
        assert tokens == list(response.completion.token_ids)
    assert [each.completion.token_ids for each in alone] == [each.completion.token_ids for each in together]
    assert [each.completion.token_log_probs for each in alone] == [each.completion.token_log_probs for each in together]
    assert told.completion.text == together[0].completion.text
    assert told.words


def test_recordings_of_several_lengths_are_written_one_after_another(tmp_path):
    """As held-out examples are: what the graphs write of all is what each gets."""
    theirs = made_moonshine(tmp_path)
    samples = [noise(size, size)[1] for size in (5000, 7000, 5000)]
    written = greedy(converted(tmp_path), [Row(each, [START]) for each in samples], NEW_TOKENS)
    assert [their_tokens(theirs, each) for each in samples] == written


def test_a_length_of_the_files_counts_the_start(tmp_path):
    """As generate() counts it, and as of no Whisper."""
    theirs = made_moonshine(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": 9, "eos_token_id": VOCAB - 1}))
    samples = noise(5000)[1]
    with torch.inference_mode():
        written = type(theirs).from_pretrained(tmp_path).generate(input_values=samples[None])[0].tolist()
    assert 8 == len(written) - 1 == converted(tmp_path).max_new_tokens


def test_adapters_are_refused_by_name(tmp_path):
    """Before anything is traced."""
    made_moonshine(tmp_path)
    with pytest.raises(ExportError, match="adapters are not for models that hear samples"):
        as_asked(converted(tmp_path), ExportOptions(adapters=2))


REFUSED = {
    "encoder_num_attention_heads": 4,
    "encoder_num_key_value_heads": 1,
    "decoder_num_key_value_heads": 1,
    "encoder_hidden_act": "mish",
    "is_encoder_decoder": False,
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(field, tmp_path):
    """Of config.json."""
    made_moonshine(tmp_path, 5)
    change_config(tmp_path, decoder_num_attention_heads=2, **{field: REFUSED[field]})
    with pytest.raises(CheckpointError, match=field):
        convert(tmp_path, ExportOptions(), filled=False)


def test_samples_that_are_normalised_are_refused(tmp_path):
    """No released model asks for it."""
    made_moonshine(tmp_path)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=True).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="do_normalize is True"):
        convert(tmp_path, ExportOptions(), filled=False)
