"""Whisper: our logits and tokens are theirs, from features and from a recording's file, alone and in a batch."""

import asyncio
import json
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from hf_models import END, LOGITS, PAD, Kind, converted, furthest, greedy, made, token_rows

from loaded import Loaded, ask
from weft_export.checkpoints.sound import wav_of
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.logits_processors.history import History
from weft_server.logits_processors.timestamps import Timestamps

RATE, SECONDS, MELS = 16000, 2, 12
HOP = 160
POSITIONS = SECONDS * RATE // HOP // 2
LANGUAGES = {"<|en|>": 290, "<|de|>": 291}
TASKS = {"transcribe": 292, "translate": 293}
NO_TIMES, START = 294, 3
# One for each place of the memory, and one for the end.
FIRST_TIME, VOCAB = NO_TIMES + 1, NO_TIMES + 1 + POSITIONS + 1
PREFIX = [290, 292, 294]
LATEST = 50
NEW_TOKENS = 40
NO_DEFAULTS = {"to_english": False, "timestamps": False}
EXTRACTOR = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": MELS,
    "sampling_rate": RATE,
    "hop_length": HOP,
    "n_fft": 400,
    "chunk_length": SECONDS,
    "n_samples": SECONDS * RATE,
    "nb_max_frames": SECONDS * RATE // HOP,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": False,
}


def draw(rng):
    """Draw a Whisper of windows of two seconds."""
    heads = rng.choice([2, 3])
    return {
        "vocab_size": VOCAB,
        "d_model": heads * rng.choice([8, 16]),
        "encoder_layers": rng.choice([1, 2]),
        "encoder_attention_heads": heads,
        "encoder_ffn_dim": rng.choice([24, 33]),
        "decoder_layers": rng.choice([1, 2]),
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": rng.choice([40, 33]),
        "num_mel_bins": MELS,
        "max_source_positions": POSITIONS,
        "max_target_positions": 64,
        "activation_function": rng.choice(["gelu", "relu"]),
        "pad_token_id": PAD,
        "eos_token_id": END,
        "bos_token_id": 2,
        "decoder_start_token_id": START,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }


WHISPER = Kind("whisper", "WhisperForConditionalGeneration", draw)


def made_whisper(directory, seed=0):
    """Write a random Whisper of two languages with its feature extractor; return theirs."""
    theirs = made(WHISPER, seed, directory)
    (directory / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))
    generation = {"lang_to_id": LANGUAGES, "task_to_id": TASKS, "no_timestamps_token_id": NO_TIMES}
    generation["max_initial_timestamp_index"] = LATEST
    path = directory / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | generation | {"is_multilingual": True}))
    return theirs


def tones(seconds, seed):
    """Tones that change, float32 [samples]."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.arange(int(seconds * RATE)) / RATE
    pitches = 200 + 2000 * torch.rand(4, generator=generator)
    gates = [(2 * torch.pi * (1 + each) * times).sin().clamp(min=0) for each in torch.rand(4, generator=generator)]
    return sum(0.2 * (2 * torch.pi * p * times).sin() * gate for p, gate in zip(pitches, gates, strict=True))


def their_tokens(model, features, prefix=PREFIX, change=lambda _, scores: scores):
    """What their decoder writes greedily behind a prefix, a step at a time over the whole target."""
    tokens = [START, *prefix]
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            given = torch.tensor([tokens])
            logits = model(input_features=features[None], decoder_input_ids=given).logits[:, -1]
            tokens.append(int(change(given, logits)[0].argmax()))
            if tokens[-1] == END:
                break
    return tokens[1 + len(prefix) :]


def their_search(model, features):
    """The best tokens that their beam search writes behind the prefix, and their score."""
    with torch.inference_mode():
        found = transformers.GenerationMixin.generate(
            model,
            features[None],
            decoder_input_ids=torch.tensor([[START, *PREFIX]]),
            num_beams=2,
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
            output_scores=True,
            return_dict_in_generate=True,
        )
    return found.sequences[0, 1 + len(PREFIX) :].tolist(), pytest.approx(found.sequences_scores.item(), rel=1e-4)


def timed(tokens, scores, start=3):
    """Hold their scores to the rule of moments, which tests/server/test_processors.py holds to theirs."""
    rule = Timestamps(FIRST_TIME, POSITIONS + 1, LATEST, NO_TIMES, [END])
    changed = scores[0].numpy().copy()
    history = History(tokens[0, :start].numpy(), room=NEW_TOKENS)
    for token in tokens[0, start:].tolist():
        history.append(token)
    rule.apply(None, changed, history)
    return torch.from_numpy(changed)[None]


def their_language(model, features):
    """The tag of the likeliest language, and its probability."""
    with torch.inference_mode():
        logits = model(input_features=features[None], decoder_input_ids=torch.tensor([[START]])).logits[0, -1]
    probabilities = logits.softmax(dim=-1)
    name = max(LANGUAGES, key=lambda each: probabilities[LANGUAGES[each]])
    return name.strip("<|>"), pytest.approx(float(probabilities[LANGUAGES[name]]), rel=1e-3)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_it_writes_what_transformers_writes(seed, tmp_path):
    """Logits within 1e-4 of a whole target, and the same greedy tokens over caches."""
    theirs = made_whisper(tmp_path, seed)
    ours = converted(tmp_path)
    features = torch.randn(3, MELS, 2 * POSITIONS)
    (row,) = token_rows(VOCAB, (30,), seed)
    target = torch.tensor([[START, *row]]).expand(3, -1)
    with torch.inference_mode():
        expected = theirs(input_features=features, decoder_input_ids=target).logits
        actual = ours.model.decode(target, features)
    assert LOGITS >= furthest(actual, expected)
    asked = [Row(each, [START, *PREFIX]) for each in features]
    assert [their_tokens(theirs, each) for each in features] == greedy(ours, asked, NEW_TOKENS)


@pytest.mark.slow
def test_a_recording_is_served_as_transformers_hears_it(tmp_path):
    """Tokens of three files of different lengths, asked at once, each as their extractor and model say."""
    directory, bundle = tmp_path / "whisper", tmp_path / "models" / "model" / "1"
    directory.mkdir()
    theirs = made_whisper(directory)
    export_checkpoint(directory, bundle)
    sounds = [tones(seconds, seed) for seed, seconds in enumerate((1.9, 0.3, 1.0))]
    files = [wav_of(each, RATE) for each in sounds]
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(directory)

    async def run():
        greedily = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS)
        async with Loaded(bundle, slots=4) as model:
            requests = [{"audio": common_pb2.Audio(data=each), "language": "en"} for each in files]
            requests = [each | {"decoding": greedily, "explain": {}} for each in requests]
            together = await asyncio.gather(*(ask(model, **each) for each in requests))
            alone = [await ask(model, **each) for each in requests]
            search = common_pb2.Decoding(beams={"num_beams": 2}, max_new_tokens=NEW_TOKENS)
            searched = [await ask(model, **each | {"decoding": search}) for each in requests]
            in_english = await ask(model, **requests[0], to_english=True)
            both = common_pb2.Audio(data=wav_of(torch.cat((sounds[0], torch.zeros(RATE // 2), sounds[1])), RATE))
            long = {"audio": both, "language": "EN", "decoding": greedily}
            wrong = (
                {**long, "timestamps": True, "decoding": common_pb2.Decoding(stop=["."])},
                {**long, "language": "fr"},
                {"language": "en"},
                {**long, "explain": {}},
                {**long, "decoding": common_pb2.Decoding(prefix={"token_ids": {"ids": [5]}})},
                {**long, "decoding": common_pb2.Decoding(num_outputs=2)},
                {**long, "audio": common_pb2.Audio(data=files[0][:30])},
            )
            refused = await asyncio.gather(*(ask(model, **each) for each in wrong), return_exceptions=True)
            untold = [each | {"language": ""} for each in requests]
            told = await asyncio.gather(*(ask(model, **each, timestamps=True) for each in untold))
            audio = model.manifest.audio
            audio.default_language, audio.default_to_english, audio.default_timestamps = "en", True, True
            audio.default_without_task = False
            by_default = await ask(model, audio=requests[0]["audio"], decoding=greedily)
            said = {**requests[0], "to_english": True, "timestamps": True, "explain": None}
            defaults = by_default, await ask(model, **said)
            by_request = await ask(model, **requests[0], to_english=False, timestamps=False)
            assert by_request.completion.token_ids == together[0].completion.token_ids
            joined = await ask(model, **long | NO_DEFAULTS)
            return together, alone, searched, in_english, joined, refused, told, defaults

    together, alone, searched, in_english, long, refused, told, defaults = asyncio.run(run())
    check_refusals(refused)
    # What the checkpoint says is answered as if the request had said it.
    ids, segments = ([getattr(each, name) for each in defaults] for name in ("completion", "segments"))
    assert ids[0].token_ids == ids[1].token_ids != together[0].completion.token_ids
    assert list(segments[0]) == list(segments[1])
    assert together[0].completion.token_ids != in_english.completion.token_ids
    assert [0, pytest.approx(1.9, abs=0.5)] == [each.start_s for each in long.segments]
    assert [pytest.approx(1.9 + 0.5 + 0.3)] * 2 == [long.duration_s, long.segments[-1].end_s]
    assert "".join("".join(each.text for each in long.segments).split()) == "".join(long.completion.text.split())
    for sound, answer, found, by_itself in zip(sounds, together, searched, told, strict=True):
        pcm = np.frombuffer(wav_of(sound, RATE)[44:], np.int16) / np.float32(32768)
        features = extractor(pcm, sampling_rate=RATE, return_tensors="pt").input_features[0]
        assert their_tokens(theirs, features) == list(answer.completion.token_ids)
        assert their_search(theirs, features) == (list(found.completion.token_ids), found.completion.score)
        assert ("en", False) == (answer.language, answer.HasField("language_probability"))
        tag, probability = their_language(theirs, features)
        assert (tag, probability) == (by_itself.language, by_itself.language_probability)
        # No file names a task, and neither does this request.
        begin = [LANGUAGES[f"<|{tag}|>"]]
        assert their_tokens(theirs, features, begin, partial(timed, start=2)) == list(by_itself.completion.token_ids)
        assert answer.duration_s == pytest.approx(len(sound) / RATE)
        assert [(each.start_s, each.text) for each in answer.segments] == [(0, answer.completion.text)]
        rows = np.array(answer.alignment.weights).reshape(-1, answer.alignment.num_columns)
        assert POSITIONS == answer.alignment.num_columns
        assert np.allclose(rows.sum(axis=1), 1, atol=1e-5)
        assert SECONDS == pytest.approx(answer.alignment.column_s * POSITIONS)
    assert [each.completion.token_ids for each in alone] == [each.completion.token_ids for each in together]
    assert [list(each.alignment.weights) for each in alone] == [list(each.alignment.weights) for each in together]


def check_refusals(refused):
    """What each of the requests below is refused for."""
    fields = [(error.field, error.reason) for error in refused]
    assert [
        ("decoding.stop", "INVALID_FIELD"),
        ("language", "INVALID_FIELD"),
        ("audio", "EMPTY_INPUT"),
        ("explain", "INPUT_TOO_LONG"),
        ("decoding.prefix", "INVALID_FIELD"),
        ("decoding.num_outputs", "INVALID_FIELD"),
        ("audio.data", "BAD_AUDIO"),
    ] == fields


def test_a_processors_file_without_an_extractor_says_nothing_of_it(tmp_path):
    """Then the other file counts, as with theirs. What else it holds is noted."""
    made_whisper(tmp_path)
    (tmp_path / "processor_config.json").write_text('{"processor_class": "WhisperProcessor", "new_of_version_9": 1}')
    result = convert(tmp_path, ExportOptions(), filled=False)
    assert MELS == result.checkpoint.audio.num_mels
    assert any("new_of_version_9 (1)" in note for note in result.notes)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("dither", 0.1, "dither"),
        ("sampling_rate", 8000, "sampling_rate"),
        ("feature_size", 80, "num_mel_bins"),
        ("chunk_length", 3, "max_source_positions"),
    ],
)
def test_an_extractor_that_does_not_fit_is_refused_by_name(field, value, named, tmp_path):
    """What changes the features is said, and not passed over."""
    made_whisper(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR | {field: value}))
    with pytest.raises(CheckpointError, match=named):
        converted(tmp_path)
