"""Extractive question answering: spans, scores and places are those of transformers' models and its former pipeline.

transformers 5 has no pipeline for it any more. `their_answers` does what that of version 4 did, in its own words: see
its QuestionAnsweringPipeline. There scores of spans with the same text are added, and here none are.
"""

import asyncio
import threading

import numpy as np
import pytest
import torch
import transformers
from encoder_kinds import EXTRACTORS
from hf_models import LOGITS, VOCAB, change_config, converted, furthest, made, made_encoder, token_rows
from test_pairs import OTHER, joining
from tokenizer_directories import reference

from loaded import Loaded, ask
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.question_answering import ExtractInput
from weft_server.rpc import extract

LENGTHS = (7, 2, 40, 12)
ASKED = (
    ("what is it", "The house of a cat is here, and its garden is behind it."),
    ("def f(x)?", "print(cat) 10 years ago"),
    ("a cat", "no"),
)
LONG = " ".join(ASKED[0][1].replace(".", f" {number} times.") for number in range(8))


@pytest.mark.parametrize("kind", EXTRACTORS, ids=lambda kind: kind.name)
def test_an_extractor_says_what_transformers_says(kind, tmp_path):
    """Logits of starts and ends are within 1e-4 for texts of other lengths in one batch."""
    theirs = made(kind, 0, tmp_path)
    joining(tmp_path, separator=OTHER)
    ours = converted(tmp_path)
    texts = [torch.tensor(row) for row in token_rows(VOCAB, LENGTHS)]
    # Where each has its second segment.
    texts = [torch.where(text == OTHER, OTHER + 1, text) for text in texts]
    for text in texts:
        text[len(text) // 2] = OTHER
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    with torch.inference_mode():
        together = ours.model(torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths)
        for text, row in zip(texts, together, strict=True):
            segments = {}
            if getattr(theirs.config, "type_vocab_size", 0) > 1:
                segments = {"token_type_ids": (torch.arange(len(text)) > len(text) // 2).long()[None]}
            said = theirs(input_ids=text[None], **segments)
            expected = torch.stack((said.start_logits[0], said.end_logits[0]), dim=1)
            assert LOGITS >= furthest(row[: len(text)], expected)
    assert ("start", "end") == ours.labels


def their_answers(
    model, tokenizer, question, context, *, top_k=1, max_answer_len=15, handle_impossible_answer=False, **windows
):
    """Do what the pipeline of transformers 4 does, which cuts a context into `windows`.

    There scores are added, and a word that ends with a window is cut. Here neither is.
    """
    (whole,) = tokenizer(question, context).encodings
    if "max_length" in windows:
        windows |= {"truncation": "only_second", "return_overflowing_tokens": True}
    encoded = tokenizer(question, context, **windows)
    answers, least = {}, 1.0
    for encoding in encoded.encodings:
        with torch.inference_mode():
            segments = {}
            if "token_type_ids" in encoded:
                segments = {"token_type_ids": torch.tensor([encoding.type_ids])}
            said = model(input_ids=torch.tensor([encoding.ids]), **segments)
        found, none = their_window(tokenizer, encoding, said, whole, max_answer_len)
        # Where a tokenizer counts white space to a word, we leave it out.
        found = {(stop - len(context[begin:stop].lstrip()), stop): score for (begin, stop), score in found.items()}
        least = min(least, none)
        answers |= {place: max(score, answers.get(place, 0.0)) for place, score in found.items()}
    found = [(score, context[begin:stop], begin, stop) for (begin, stop), score in answers.items()]
    if handle_impossible_answer:
        found.append((least, "", 0, 0))
    return sorted(found, key=lambda answer: -answer[0])[:top_k]


def their_window(tokenizer, encoding, said, whole, max_answer_len):
    """Scores of the spans of a window, by their places in the context, and that of no answer."""
    of_context = np.array([which == 1 for which in encoding.sequence_ids])
    allowed = of_context | (np.array(encoding.ids) == tokenizer.cls_token_id)
    start, end = (
        torch.where(torch.tensor(allowed), logits[0], torch.tensor(-10000.0)).double().softmax(dim=0).numpy()
        for logits in (said.start_logits, said.end_logits)
    )
    none = start[0] * end[0]
    start[0] = end[0] = 0
    scores = np.tril(np.triu(np.outer(start, end)), max_answer_len - 1)
    answers = {}
    for index in np.argsort(-scores, axis=None, kind="stable"):
        first, last = np.unravel_index(index, scores.shape)
        if not (of_context[first] and of_context[last] and scores[first, last] > 0):
            continue
        # The whole words that both tokens are of.
        begin = whole.word_to_chars(encoding.token_to_word(first), 1)[0]
        stop = whole.word_to_chars(encoding.token_to_word(last), 1)[1]
        answers.setdefault((begin, stop), scores[first, last])
    return answers, none


# A tokenizer that knows words, one of bytes, and one of SentencePiece.
SERVED = [
    ("Bert", "bert"),
    ("Roberta", "roberta"),
    pytest.param("XLMRoberta", "xlm-roberta", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "files"), SERVED)
def test_answers_are_those_of_the_pipeline(name, files, tmp_path, monkeypatch):
    """Texts and places are theirs and scores within 1e-5, for each option; the same bits alone and together.

    So it is where a context is read in windows. Refused by name: options out of range, an empty text, one that is too
    long, and what spells their divider.
    """
    model_class = getattr(transformers, f"{name}ForQuestionAnswering")
    theirs = made_encoder(model_class, files, tmp_path / "saved", seed=3, more_rows=0)
    tokenizer = reference(tmp_path / "saved")
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "saved", bundle, ExportOptions(no_explain=name != "Bert"))

    async def run():
        async with Loaded(bundle) as model:
            for options in ({}, {"top_k": 20}, {"top_k": 3, "max_answer_tokens": 2, "allow_no_answer": True}):
                requests = [{"question": question, "context": context, **options} for question, context in ASKED]
                together = await asyncio.gather(*(ask(model, **each) for each in requests))
                for request, answer in zip(requests, together, strict=True):
                    assert answer.answers == (await ask(model, **request)).answers
                    expected = their_answers(
                        theirs,
                        tokenizer,
                        request["question"],
                        request["context"],
                        top_k=options.get("top_k", 1),
                        max_answer_len=options.get("max_answer_tokens", 15),
                        handle_impossible_answer="allow_no_answer" in options,
                    )
                    found = [(each.text, each.start, each.end) for each in answer.answers]
                    assert [each[1:] for each in expected] == found
                    scores = [each.score for each in answer.answers]
                    assert pytest.approx([each[0] for each in expected], abs=1e-5) == scores
            await check_windows(model, theirs, tokenizer)
            await check_refusals(model, tokenizer.sep_token)
            if name == "Bert":
                explained = await ask(model, question="a", context="b", explain=common_pb2.Explain())
                assert explained.usage.input_tokens == len(explained.alignment.target_tokens)
                with pytest.raises(InvalidRequest, match="explain is for a context of one window"):
                    await ask(model, question="a", context=LONG, explain=common_pb2.Explain())
                await check_where_it_picks(model, monkeypatch)
        if name == "Bert":
            # Nothing else waits, so no bound of tokens stands against it.
            async with Loaded(bundle, max_queued_tokens=40) as model:
                assert 40 < (await ask(model, question="a", context=LONG)).usage.input_tokens

    asyncio.run(run())


async def check_where_it_picks(model, monkeypatch):
    """Few tokens are looked through at once. Many are, in one window or several, where they hold nobody up."""
    threads, answers = [], ExtractInput.answers

    def noted(*args, **options):
        threads.append(threading.current_thread())
        return answers(*args, **options)

    monkeypatch.setattr(ExtractInput, "answers", noted)
    monkeypatch.setattr(extract, "MANY_TOKENS", 30)
    for context in ("b", "b " * 40, LONG):
        await ask(model, question="a", context=context)
    assert [True, False, False] == [each is threading.main_thread() for each in threads]


async def check_windows(model, theirs, tokenizer):
    """A context that is too long is read in windows, as theirs is, and one that fits too, if it is asked for."""
    question, most = ASKED[0][0], model.reader.max_tokens
    for context, windows, asked in (
        (LONG, {"max_length": most, "stride": most // 2 - 8}, {"doc_stride": most // 2 - 8}),
        (LONG, {"max_length": 40, "stride": 20}, {"max_seq_len": 40}),
        (LONG, {"max_length": 30, "stride": 0}, {"max_seq_len": 30, "doc_stride": 0}),
        (ASKED[0][1], {"max_length": 24, "stride": 3}, {"max_seq_len": 24, "doc_stride": 3}),
        (ASKED[0][1], {"max_length": most, "stride": 9}, {}),
    ):
        request = {"question": question, "context": context, "top_k": 20, "allow_no_answer": True, **asked}
        answer, again = await asyncio.gather(ask(model, **request), ask(model, **request))
        assert answer.answers == again.answers
        options = {"top_k": 20, "handle_impossible_answer": True, **windows}
        expected = their_answers(theirs, tokenizer, question, context, **options)
        assert [each[1:] for each in expected] == [(each.text, each.start, each.end) for each in answer.answers]
        assert pytest.approx([each[0] for each in expected], abs=1e-5) == [each.score for each in answer.answers]
        given = {"truncation": "only_second", "return_overflowing_tokens": True, **windows}
        counted = sum(map(len, tokenizer(question, context, **given)["input_ids"]))
        assert counted == answer.usage.input_tokens


async def check_refusals(model, separator):
    """What a request may not be."""
    asked = {"question": "a", "context": "b"}
    for wrong, field, why in (
        ({"top_k": 0}, "top_k", r"must be 1\.\.20, not 0"),
        ({"top_k": 21}, "top_k", "not 21"),
        ({"max_answer_tokens": 0}, "max_answer_tokens", r"must be 1\.\.128"),
        ({"max_answer_tokens": 129}, "max_answer_tokens", "not 129"),
        ({"question": " "}, "question", "must not be empty"),
        ({"context": ""}, "context", "must not be empty"),
        ({"context": f"b {separator} c"}, "context", "spells the token that stands between"),
        ({"question": separator}, "question", "spells the token that stands between"),
        ({"context": "b" * 131_073}, "context", "is 131073 characters long; at most 131072 are taken"),
        ({"max_seq_len": 0}, "max_seq_len", r"must be 1\.\."),
        ({"max_seq_len": 999}, "max_seq_len", "not 999"),
        ({"context": LONG, "max_seq_len": 3}, "question", "none is left"),
        ({"context": LONG, "max_seq_len": 20, "doc_stride": 19}, "doc_stride", "must be below 1[0-9], the tokens of"),
        ({"context": LONG * 40, "max_seq_len": 8, "doc_stride": 0}, "context", "windows of 8 tokens; at most 256"),
    ):
        with pytest.raises(InvalidRequest, match=why) as refused:
            await ask(model, **asked | wrong)
        assert field == refused.value.field


def test_what_is_no_extractor_is_refused(tmp_path):
    """A head of other than two labels, and a tokenizer that puts nothing between two texts."""
    made(EXTRACTORS[4], 0, tmp_path)
    with pytest.raises(CheckpointError, match="it takes two texts, and its tokenizer puts no token between them"):
        converted(tmp_path)
    joining(tmp_path, separator=OTHER)
    converted(tmp_path)
    change_config(tmp_path, id2label={"0": "a", "1": "b", "2": "c"})
    with pytest.raises(CheckpointError, match="must be of 2 labels: where an answer starts, and where it ends"):
        converted(tmp_path)
