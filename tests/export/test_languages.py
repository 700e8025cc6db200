"""What languages, a prefix and a forced end change of an export: the golden answer, held-out examples, parity."""

import json
from dataclasses import replace

import pytest
from polyglot import LANGUAGES, MIN_NEW, given, greedy, polyglot
from tiny import tiny_caption, tiny_image
from tiny_parts import END, START
from tokenizers import Tokenizer

from weft_export.bundle import manifest_of
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import read_held_out
from weft_export.checkpoints.random_requests import random_requests
from weft_export.errors import CheckpointError
from weft_export.graphs.answering import row_of, torch_run
from weft_export.graphs.graphs import graphs_of
from weft_export.verification.golden import GoldenRequest, check_golden
from weft_export.verification.quality import score_of
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32


def test_a_checkpoint_keeps_its_languages(tmp_path):
    """What config.json says of languages, prefix, forced end, golden request and least length comes back from it."""
    checkpoint = polyglot()
    save_checkpoint(tmp_path, checkpoint)
    loaded = load_checkpoint(tmp_path)

    assert (checkpoint.text, checkpoint.golden, MIN_NEW) == (loaded.text, loaded.golden, loaded.min_new_tokens)
    manifest = manifest_of(loaded, FP32, loaded.golden)
    assert (16, MIN_NEW) == (manifest.decoding.max_new_tokens, manifest.decoding.min_new_tokens)


@pytest.mark.parametrize("target", ["pt", "zh-Hant"])
def test_a_golden_answer_is_given_behind_a_prefix_and_ends_as_it_must(target):
    """It is what a request for as many tokens gets, and the graphs give it too."""
    checkpoint = polyglot()
    checkpoint.golden.target_language = target
    golden = GoldenRequest(checkpoint, FP32).answer()
    ids, start = given(checkpoint, golden.text, "en", target)

    assert len(golden.token_ids) > 2
    assert greedy(checkpoint, ids, start, len(golden.token_ids), 0)[0] == list(golden.token_ids)
    check_golden(checkpoint, golden, torch_run(graphs_of(checkpoint, FP32)), FP32)


def test_another_end_is_not_the_last_of_a_golden_answer():
    """Where the answer ends with one by itself, a server that is asked for so many tokens gives the forced one."""
    checkpoint = polyglot()
    chosen = GoldenRequest(checkpoint, FP32).answer().token_ids[1]
    checkpoint.text.end_ids.append(chosen)
    golden = GoldenRequest(checkpoint, FP32).answer()

    assert [END] == list(golden.token_ids[1:])
    check_golden(checkpoint, golden, torch_run(graphs_of(checkpoint, FP32)), FP32)


def test_an_end_alone_is_no_golden_answer():
    """Any model would give it where it is forced, so a part of the text is asked that is answered by more."""
    checkpoint = polyglot()
    checkpoint.text.end_ids.append(GoldenRequest(checkpoint, FP32).answer().token_ids[0])
    golden = GoldenRequest(checkpoint, FP32).answer()

    assert golden.text != checkpoint.golden.text
    assert ("en", "pt") == (golden.source_language, golden.target_language)
    assert len(golden.token_ids) > 1


@pytest.mark.parametrize(
    ("make", "languages", "complaint"),
    [
        (polyglot, ("", "pt"), "golden.source_language is required: one of en, pt"),
        (polyglot, ("en", "es"), "golden.target_language must be one of pt, zh-Hant, not 'es'"),
        (tiny_caption, ("", "es"), "golden.target_language is for models that translate"),
        (tiny_image, ("en", ""), "golden.source_language is for models that translate"),
    ],
)
def test_a_golden_request_names_languages_as_any_other(make, languages, complaint):
    """A server would refuse it, so the exporter does at once."""
    checkpoint = make()
    checkpoint.golden.source_language, checkpoint.golden.target_language = languages
    with pytest.raises(CheckpointError, match=complaint):
        GoldenRequest(checkpoint, FP32).answer()


def lines(folder, *examples):
    """A file of held-out examples."""
    path = folder / "held_out.jsonl"
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))
    return path


def test_held_out_examples_name_languages(tmp_path):
    """Each is asked as a request with these tags is: its own greedy answers are exact matches."""
    checkpoint = replace(polyglot(), min_new_tokens=0)
    asked = [("the big dog eats", "en", "pt"), ("a red bird", "PT", "zh-hant"), ("cat", "en", "zh-Hant")]
    examples = read_held_out(
        lines(
            tmp_path, *({"input": t, "reference": "x", "source_language": s, "target_language": i} for t, s, i in asked)
        ),
        checkpoint,
    )
    run = torch_run(graphs_of(checkpoint, FP32))
    own = []
    for (text, source, into), example in zip(asked, examples, strict=True):
        ids, start = given(checkpoint, text, source.lower(), {"zh-hant": "zh-Hant"}.get(into, into))
        assert (ids, start) == (example.source.tolist(), row_of(checkpoint, example).tokens)
        tokens, _ = greedy(checkpoint, ids, start, checkpoint.text.max_new_tokens, 0)
        words = checkpoint.files["target.json"]
        own.append(replace(example, reference=decoded(words, tokens)))

    assert 1.0 == score_of(run, checkpoint, own, "exact_match")


def decoded(tokenizer, tokens):
    """The text of an answer without its end."""
    return Tokenizer.from_buffer(tokenizer).decode([token for token in tokens if token != END])


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({}, "line 1: source_language is required: one of en, pt"),
        ({"source_language": "en", "target_language": 3}, "line 1: target_language is not a text"),
        ({"source_language": "en", "target_language": "en"}, "line 1: target_language must be one of pt, zh-Hant"),
    ],
)
def test_an_example_without_its_languages_is_refused(tmp_path, more, complaint):
    """By its line and the key that is wrong."""
    with pytest.raises(CheckpointError, match=complaint):
        read_held_out(lines(tmp_path, {"input": "cat", "reference": "x", **more}), polyglot())


def test_parity_is_checked_behind_each_prefix():
    """Random requests begin as those of callers do, and take turns with the languages."""
    checkpoint = polyglot()
    begins = [request.tokens for request in random_requests(checkpoint)]
    prefixes = [LANGUAGES[tag]["target_prefix"] for tag in ("pt", "zh-Hant", "pt", "zh-Hant")]
    assert [[START, 20, *prefix] for prefix in prefixes] == begins
