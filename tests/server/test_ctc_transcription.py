"""A model with a label for each moment: what it answers, one window after the other, and what it refuses by name."""

import asyncio
import math

import numpy as np
import pytest
import torch
from tiny import CHECKPOINTS

from loaded import Loaded, answering, ask
from openai_calls import form, serving
from weft_export.checkpoints.sound import wav_of
from weft_proto.v1 import common_pb2, transcription_pb2
from weft_server.errors import BundleError, RequestError
from weft_server.loading.golden import verify_golden
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext

NAME, RATE, WINDOW = "tiny-ctc", 4000, 2000
PATH = "/v1/audio/transcriptions"


def noise(num_samples, seed=0):
    """A WAV of noise."""
    return wav_of(0.3 * torch.randn(num_samples, generator=torch.Generator().manual_seed(seed)), RATE)


def by_torch(file):
    """The text of a recording of one window, as Graves et al. say it, from the checkpoint's logits."""
    checkpoint = CHECKPOINTS[NAME]()
    best = checkpoint.model(checkpoint.read_media("file", file)[None])[0].argmax(dim=-1).tolist()
    left = [label for label, before in zip(best, [None, *best], strict=False) if label != before]
    said = "".join(checkpoint.labels[label] for label in left if label != 0)
    return said.replace("|", " ").strip()


def run(tiny_repository, talk, **settings):
    """What `talk` returns of the model."""

    async def loaded():
        async with Loaded(tiny_repository / NAME / "1", **settings) as model:
            return await talk(model)

    return asyncio.run(loaded())


async def streamed(model, **request):
    """The messages of a stream."""
    REQUEST_CONTEXT.set(RequestContext("StreamTranscribe"))
    asked = transcription_pb2.StreamTranscribeRequest(request=request)
    return [each async for each in answering(model)["StreamTranscribe"](asked, None)]


@pytest.mark.parametrize("num_samples", [20, 1999, WINDOW])
def test_a_window_says_what_its_labels_say(num_samples, tiny_repository):
    """From one label up, equal ones merged and blanks left out. Its words stand in the text, one behind the other."""
    file = noise(num_samples)
    answer = run(tiny_repository, lambda model: ask(model, audio={"data": file}))
    assert by_torch(file) == answer.completion.text
    assert answer.completion.text.split() == [each.text for each in answer.words]
    times = [each for word in answer.words for each in (word.start_s, word.end_s)]
    assert sorted(times) == times
    assert all(0 <= each <= num_samples / RATE + 1e-6 for each in times)
    assert common_pb2.FINISH_REASON_STOP == answer.completion.finish_reason


def test_a_window_is_heard_as_the_exporter_hears_it(tiny_repository):
    """Normalised, to the bit. A norm over time would hide another loudness in every answer."""
    file = noise(1234)

    async def talk(model):
        audio = common_pb2.Audio(data=file)
        (part,) = await model.work(lambda wanted: model.reader.read_windows(audio, wanted), math.inf)
        return part.source.array

    assert np.array_equal(CHECKPOINTS[NAME]().read_media("file", file), run(tiny_repository, talk))


def test_a_stream_has_a_message_for_each_window(tiny_repository):
    """Its texts together are the text of the last message, which is that of the unary call."""
    file = noise(3 * WINDOW)

    async def talk(model):
        return await ask(model, audio={"data": file}), await streamed(model, audio={"data": file})

    whole, messages = run(tiny_repository, talk)
    *deltas, last = messages
    assert len(whole.segments) == len(deltas) > 3
    assert whole.completion.text == last.final.completion.text == "".join(each.delta.text for each in deltas)
    assert list(whole.words) == list(last.final.words)
    assert [0.0] == [each.start_s for each in whole.segments[:1]]
    assert whole.words[-1].start_s > WINDOW / RATE


SCORED = {"return_scores": True, "decoding": {"greedy": {}}}


def test_scores_are_of_the_labels_that_are_left(tiny_repository):
    """One for each, and what it says; `greedy` may be said."""
    answer = run(tiny_repository, lambda model: ask(model, audio={"data": noise(WINDOW)}, **SCORED)).completion
    labels = CHECKPOINTS[NAME]().labels
    assert [labels[each] for each in answer.token_ids] == list(answer.tokens)
    assert len(answer.token_ids) == len(answer.token_log_probs) > 3
    # Nothing is decoded: so does the log say, and what a tenant has used.
    assert 0 == answer.usage.output_tokens < answer.usage.input_tokens
    assert all(-3 < each <= 0 for each in answer.token_log_probs)
    assert answer.text == "".join(answer.tokens).replace("|", " ").strip()


REFUSED = [
    ({"decoding": {"beams": {"num_beams": 2}}}, "decoding.beams"),
    ({"decoding": {"sampling": {"temperature": 0.5}}}, "decoding.sampling"),
    ({"decoding": {"max_new_tokens": 5}}, "decoding.max_new_tokens"),
    ({"decoding": {"stop": ["a"]}}, "decoding.stop"),
    ({"decoding": {"num_outputs": 2}}, "decoding.num_outputs"),
    ({"decoding": {"constraint": {"regex": "a"}}}, "decoding.constraint"),
    ({"decoding": {"min_new_tokens": 1}}, "decoding.min_new_tokens"),
    ({"language": "en"}, "language"),
    ({"to_english": True}, "to_english"),
    ({"timestamps": True}, "timestamps"),
    ({"num_top_tokens": 1}, "num_top_tokens"),
    ({"explain": {}}, "explain"),
    ({"audio": None}, "audio"),
    ({"audio": {"data": noise(19)}}, "audio.data"),
    ({"audio": {"data": b"RIFF"}}, "audio.data"),
]


def test_what_means_nothing_without_a_decoder_is_refused_by_name(tiny_repository):
    """And a recording that is too short for one label. Nothing is left behind."""

    async def talk(model):
        asked = [{"audio": {"data": noise(900)}, **change} for change, _ in REFUSED]
        found = await asyncio.gather(*(ask(model, **each) for each in asked), return_exceptions=True)
        return [error.field if isinstance(error, RequestError) else error for error in found]

    assert [field for _, field in REFUSED] == run(tiny_repository, talk)


def test_more_windows_than_may_wait_are_refused(tiny_repository):
    """By the recording's name, before any is heard."""
    refused = pytest.raises(RequestError, match="windows, and this server lets 2 wait")
    with refused as caught:
        run(tiny_repository, lambda model: ask(model, audio={"data": noise(4 * WINDOW)}), max_queued_requests=2)
    assert ("audio", "INPUT_TOO_LONG") == (caught.value.field, caught.value.reason)


def test_recordings_of_one_length_share_a_run(tiny_repository):
    """Others never do: a row has no padding. A crowd's answers are those of each alone, to the bit."""
    files = [noise(size, seed) for seed, size in enumerate([1500, 1500, 1499, 1500, 1481, 1500])]

    async def talk(model):
        alone = [await ask(model, audio={"data": each}, return_scores=True) for each in files]
        (lane,) = model.engine.lanes
        session = lane.sessions["waveform"]
        shapes, compute = [], session.run

        def noting(feeds):
            shapes.append(feeds["waveform"].shape)
            return compute(feeds)

        session.run = noting
        together = await asyncio.gather(*(ask(model, audio={"data": each}, return_scores=True) for each in files))
        return alone, together, shapes

    alone, together, shapes = run(tiny_repository, talk, lanes=1)
    assert [each.completion.token_log_probs for each in alone] == [each.completion.token_log_probs for each in together]
    assert {1481, 1499, 1500} == {num_samples for _, num_samples in shapes}
    assert 1 < max(num_rows for num_rows, _ in shapes)


def test_another_golden_answer_is_refused(tiny_repository):
    """By a log-probability that is off by more than rounding, or by one too many."""

    async def talk(model):
        await verify_golden(model)
        golden = model.manifest.golden
        golden.scores[7] -= 0.01
        with pytest.raises(BundleError, match="golden answer differs"):
            await verify_golden(model)
        golden.scores[7] += 0.01
        golden.scores.append(-1.0)
        with pytest.raises(BundleError, match="golden answer differs"):
            await verify_golden(model)

    run(tiny_repository, talk)


def test_by_http_words_need_no_explanation(tiny_repository):
    """Text, words, segments and log-probabilities are those of the typed call; a stream has the text too."""
    file = noise(WINDOW)
    typed = run(tiny_repository, lambda model: ask(model, audio={"data": file}, return_scores=True))

    async def talk():
        async with serving(tiny_repository, NAME) as client:
            asked = (
                {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
                {"response_format": "verbose_json"},
                {"include[]": "logprobs", "temperature": "0"},
                {"stream": "true"},
                {"response_format": "srt"},
                {"language": "en"},
            )
            return [(await client.send("POST", PATH, *form(file, model=NAME, **each)))[2] for each in asked]

    words, segments, scored, events, subtitles, refused = asyncio.run(talk())
    expected = [(each.text, pytest.approx(each.start_s, abs=1e-3)) for each in typed.words]
    assert expected == [(each["word"], each["start"]) for each in words["words"]]
    assert [typed.completion.text] == [each["text"] for each in segments["segments"]]
    assert np.allclose(typed.completion.token_log_probs, [each["logprob"] for each in scored["logprobs"]])
    assert typed.completion.text == "".join(each["delta"] for each in events[:-2])
    assert typed.completion.text in subtitles
    assert "language" == refused["error"]["param"]
