"""A converted encoder-decoder through the real process: languages, a decoder's prefix and a forced end.

A tiny random translator, whose answers are held to a plain greedy loop in torch.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from polyglot import MIN_NEW, given, greedy, polyglot
from tiny_parts import END

import weft
from process import ServerProcess
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

pytestmark = pytest.mark.e2e

TEXTS = ["the big dog eats", "a red bird sees the house", "we find the green tree", "cat", "you and they are not here"]
CHECKPOINT = polyglot()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Where a real server listens that has this model alone."""
    folder = tmp_path_factory.mktemp("polyglot")
    save_checkpoint(folder / "checkpoint", CHECKPOINT)
    export_checkpoint(folder / "checkpoint", folder / "models" / "polyglot" / "1", ExportOptions(no_score=True))
    with ServerProcess(folder / "models") as server:
        server.wait_for("ready", timeout=60)
        yield server.target


@pytest.fixture
def client(target):
    """A client of that server."""
    with weft.Client(target, timeout=60) as client:
        yield client


REQUESTS = [
    (text, source, into, max_new)
    for text in TEXTS
    for source in ("en", "pt")
    for into in ("pt", "zh-Hant")
    for max_new in (1, 4, 21)
]


def translate(client, text, source, into, max_new, **more):
    """Ask for one translation, with scores."""
    return client.translate(
        text,
        source_language=source,
        target_language=into,
        decoding=weft.Decoding(max_new_tokens=max_new),
        return_scores=True,
        **more,
    )


@pytest.fixture(scope="module")
def expected():
    """For each of REQUESTS: its ids, and the tokens and log-probabilities of a plain loop."""
    found = []
    for text, source, into, max_new in REQUESTS:
        ids, start = given(CHECKPOINT, text, source, into)
        found.append((ids, *greedy(CHECKPOINT, ids, start, max_new, min(MIN_NEW, max_new))))
    return found


@pytest.mark.parametrize("crowd", [1, 24], ids=["alone", "in a batch"])
def test_answers_are_those_of_a_plain_loop(client, expected, crowd):
    """Every text between all languages, short and long: tokens, scores and reason, and never the prefix."""
    with ThreadPoolExecutor(crowd) as threads:
        answers = list(threads.map(lambda request: translate(client, *request), REQUESTS))

    forced = 0
    for (*_, max_new), (ids, tokens, log_probs), answer in zip(REQUESTS, expected, answers, strict=True):
        assert tokens == list(answer.token_ids)
        assert pytest.approx(log_probs, abs=1e-4) == list(answer.token_log_probs)
        assert (len(ids), len(tokens)) == (answer.usage.input_tokens, answer.usage.output_tokens)
        assert min(MIN_NEW, max_new) == answer.decoding.min_new_tokens
        assert "[END]" not in answer.text
        if answer.finish_reason is weft.FinishReason.LENGTH:
            forced += 1
            assert (max_new, END) == (len(tokens), tokens[-1])
    assert 0 < forced < len(REQUESTS)
    assert len({answer.token_ids for answer in answers}) > len(REQUESTS) // 3


def test_the_same_bits_alone_and_in_a_batch(client):
    """Scores tell: prefixes of others take their steps beside a row, and nothing of it changes."""
    alone = [translate(client, *request).token_log_probs for request in REQUESTS[:24]]
    with ThreadPoolExecutor(24) as threads:
        crowded = list(threads.map(lambda request: translate(client, *request).token_log_probs, REQUESTS[:24]))
    assert alone == crowded


def test_a_stream_and_an_alignment_begin_with_the_first_chosen_token(client):
    """A stream's text is the answer's. An alignment has a row for each token of it, and a column for each added id."""
    ids, start = given(CHECKPOINT, "the big dog eats", "pt", "pt")
    answer = translate(client, "the big dog eats", "pt", "pt", 6, explain=True)
    with client.stream_translate("the big dog eats", source_language="PT", target_language="Pt") as stream:
        text = "".join(stream)

    assert stream.result.text == text
    assert len(answer.token_ids) == len(answer.alignment.weights)
    assert len(ids) == len(answer.alignment.source_tokens)
    source = (torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32))
    with torch.inference_mode():
        read = torch.tensor([start + list(answer.token_ids)[:-1]])
        weights, _ = CHECKPOINT.model.explain(torch.tensor([1]), torch.tensor([-1]), read, *source)
    torch.testing.assert_close(weights[len(start) - 1 :], torch.tensor(answer.alignment.weights), atol=1e-4, rtol=0)


def test_token_ids_are_read_as_they_are(client):
    """Nothing is put around them, and the answer still begins with the target language's prefix."""
    ids, start = given(CHECKPOINT, "the big dog eats", "en", "pt")
    for source in (ids, ids[2:]):
        answer = translate(client, source, "en", "pt", 8)
        assert greedy(CHECKPOINT, source, start, 8, MIN_NEW)[0] == list(answer.token_ids)
        assert len(source) == answer.usage.input_tokens


def test_added_ids_count_as_part_of_a_source(client):
    """The model takes 20 tokens: 15 words, an end and 4 ids of languages are as many."""
    asked = {"source_language": "pt", "target_language": "pt"}
    assert 20 == client.translate("cat " * 15, **asked).usage.input_tokens
    with pytest.raises(weft.InvalidRequest, match="text is 21 tokens long; the model takes 20 tokens"):
        client.translate("cat " * 16, **asked)
    assert 18 == client.translate("cat " * 16, source_language="en", target_language="zh-Hant").usage.input_tokens


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"target_language": "pt"}, "source_language is required: one of en, pt"),
        ({"source_language": "en"}, "target_language is required: one of pt, zh-Hant"),
        (
            {"source_language": "pt-BR", "target_language": "pt"},
            "source_language must be one of en, pt, not 'pt-BR'; the nearest is pt",
        ),
    ],
)
def test_a_language_is_named_and_never_guessed(client, asked, refusal):
    """The refusal names the field, and languages that there are; GetModel lists them too."""
    with pytest.raises(weft.InvalidRequest, match=refusal):
        client.translate("cat", **asked)
    model = client.get_model("polyglot")
    assert (("en", "pt"), ("pt", "zh-Hant")) == (model.source_languages, model.target_languages)
    assert MIN_NEW == model.decoding.min_new_tokens
