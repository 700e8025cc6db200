"""How a question and its context are read: in which windows, and what is refused."""

import asyncio
import re
from types import SimpleNamespace

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from weft_proto.v1 import bundle_pb2, classification_pb2, common_pb2
from weft_server.errors import InvalidRequest
from weft_server.models.request_context import RequestContext
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.question_answering import ExtractInput, Windowing, windows_of
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.rpc.extract import answer_extract

LIMITS = dict.fromkeys(("max_image_bytes", "max_image_pixels", "max_audio_bytes", "max_audio_s"), 1)
FIRST, BETWEEN = ("[CLS]", 1), ("[SEP]", 2)


def joiner(first):
    """A tokenizer of words that joins two texts, and puts `first` before them, if it is one."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pair = "$A [SEP] $B:1 [SEP]:1" if first is None else "[CLS] $A [SEP] $B:1 [SEP]:1"
    single = pair.removesuffix(" $B:1 [SEP]:1")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[BETWEEN] if first is None else [first, BETWEEN]
    )
    return tokenizer


def source_of(directory, first, context):
    """An input of a model that takes nine tokens."""
    joiner(first).save(str(directory / "tokenizer.json"))
    text = {"max_source_tokens": 9, "source_vocab_size": 4, "separator_id": 2}
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_EXTRACT, text=text)
    tokenizer = Tokenizer(directory / "tokenizer.json")
    return ExtractInput(InputReader(manifest, tokenizer, **LIMITS), tokenizer, "a", context)


def test_no_answer_needs_a_token_that_stands_for_it(tmp_path):
    """Where the tokenizer puts none before the question, allow_no_answer is refused, and not ignored."""
    assert 1 == len(source_of(tmp_path, FIRST, "a").read(Windowing(), allow_no_answer=True))
    source = source_of(tmp_path, None, "a")
    assert 1 == len(source.read(Windowing(), allow_no_answer=False))
    with pytest.raises(InvalidRequest, match="allow_no_answer needs a token before the question that stands for no"):
        source.read(Windowing(), allow_no_answer=True)


@pytest.mark.parametrize("num_words", [1, 4, 5, 6, 7, 12, 40])
@pytest.mark.parametrize("windowing", [Windowing(), Windowing(9, 0), Windowing(9, 4), Windowing(7, 2), Windowing(6, 1)])
def test_windows_are_those_of_the_tokenizers_library(tmp_path, num_words, windowing):
    """Its truncation of the second text, with a stride, gives the same ids in the same order."""
    context = " ".join("a" if number % 3 else "b" for number in range(num_words))
    found = source_of(tmp_path, FIRST, context).read(windowing, allow_no_answer=False)
    theirs, most = joiner(FIRST), windowing.max_seq_len or 9
    stride = 4 if windowing.doc_stride is None else windowing.doc_stride
    theirs.enable_truncation(most, stride=stride, strategy="only_second")
    encoding = theirs.encode("a", context)
    assert [each.ids for each in (encoding, *encoding.overflowing)] == [source.array.tolist() for source in found]


def test_windows_by_default_share_128_tokens():
    """Or half of a window, as in transformers' pipeline. Beside a long question it is as many as a window can share."""
    assert [range(509), range(381, 890), range(762, 900)] == windows_of(900, 3, 512, Windowing())
    assert [range(37), range(17, 54), range(34, 60)] == windows_of(60, 3, 40, Windowing())
    assert [range(number, number + 2) for number in range(3)] == windows_of(4, 510, 512, Windowing())


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"top_k": 0}, "top_k must be 1..20, not 0"),
        ({"top_k": 21}, "top_k must be 1..20, not 21"),
        ({"max_answer_tokens": 0}, "max_answer_tokens must be 1..128, not 0"),
        ({"max_answer_tokens": 129}, "max_answer_tokens must be 1..128, not 129"),
    ],
)
def test_how_many_answers_and_how_long_is_bounded(asked, refusal):
    """Before anything is read."""

    async def take(*_):
        return SimpleNamespace(source_tokenizer=object())

    request = classification_pb2.ExtractRequest(**asked)
    with pytest.raises(InvalidRequest, match=re.escape(refusal)):
        asyncio.run(answer_extract(SimpleNamespace(take=take), RequestContext("x"), request))
