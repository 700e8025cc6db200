"""Any text is tokenized or refused by its field, and any tokenizer file is one or is refused."""

import json
import tempfile
from pathlib import Path

import pytest
import tokenizers
from hypothesis import event, example, given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

import tokenizer_kinds
from bounded import Bounded
from hostile_tokenizers import HOSTILE
from mutations import budget, mutated_json
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.tokenizer import Tokenizer

LIMITS = dict.fromkeys(("max_image_bytes", "max_image_pixels", "max_audio_bytes", "max_audio_s"), 1)
MOST_TOKENS = 1_048_575
# How GPT-2, Llama 3 and GPT-4o cut a text.
CUTS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def cut_by(expression):
    """A tokenizer of bytes whose text is cut by an expression first."""
    tokenizer = tokenizer_kinds.byte_level()
    cut = pre_tokenizers.Split(Regex(expression), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, whole])
    return tokenizer


def bert():
    """As BERT's: controls are cleaned away, and characters of Chinese stand alone."""
    tokenizer = tokenizer_kinds.word_piece()
    tokenizer.normalizer = normalizers.BertNormalizer()
    return tokenizer


def stripped():
    """As DeBERTa's and ALBERT's: what is left of a text has no white space around it."""
    tokenizer = tokenizer_kinds.words()
    steps = [
        normalizers.Replace(Regex("[\u200b\u00ad]"), ""),
        normalizers.Strip(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def fused():
    """As Llama 2's: no cuts at all."""
    vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "aa": 4, **{f"<0x{byte:02X}>": byte + 5 for byte in range(256)}}
    model = models.BPE(vocab, [("▁", "a"), ("a", "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


KINDS = {
    "byte level": tokenizer_kinds.byte_level,
    "words": tokenizer_kinds.words,
    "word piece": tokenizer_kinds.word_piece,
    "letters": tokenizer_kinds.letters,
    "bert": bert,
    "stripped": stripped,
    "fused": fused,
    **{name: (lambda expression=expression: cut_by(expression)) for name, expression in CUTS.items()},
}
_loaded = {}


def written(content):
    """A tokenizer of a file with this content, as a server loads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(content)
        return Tokenizer(path)


def read(kind, text):
    """What a server makes of a text: how many tokens, or the refusal's field and reason."""
    if kind not in _loaded:
        _loaded[kind] = written(KINDS[kind]().to_str())
    return _read(_loaded[kind], text)


def _read(tokenizer, text):
    vocab = max(1, tokenizer.num_ids)
    manifest = bundle_pb2.BundleManifest(
        task=common_pb2.TASK_GENERATE, text={"max_total_tokens": MOST_TOKENS + 1, "source_vocab_size": vocab}
    )
    reader = InputReader(manifest, tokenizer, **LIMITS)
    try:
        ids = reader.read_text(text, "text").array.tolist()
        pieces = reader.split_text(text, "text") if len(text) <= 4096 else None
    except InvalidRequest as error:
        return error.field, error.reason
    assert all(0 <= id_ < vocab for id_ in ids)
    if pieces is not None:
        assert ids == [piece.id for piece in pieces]
        assert all(0 <= piece.start <= piece.end <= len(text) for piece in pieces)
    tokenizer.decode(ids[:4096]).encode()
    return len(ids)


def read_with(content, texts):
    """What a server makes of a file: how it reads texts, or why it refuses the bundle."""
    try:
        tokenizer = written(content)
    except BundleError as error:
        return str(error)
    return [_read(tokenizer, text) for text in texts]


@pytest.fixture(scope="module")
def reading():
    """`read` in a process of its own."""
    with Bounded(__file__, "read") as call:
        yield call


@pytest.fixture(scope="module")
def loading():
    """`read_with` in a process of its own."""
    with Bounded(__file__, "read_with") as call:
        yield call


ANY = st.characters(exclude_categories=["Cs"])
SHORT = st.text(st.one_of(ANY, st.sampled_from(" \t\n\r\0\u200b\u00ad\u0301\u0345ﷺßİ日👩\u200d'")), max_size=200)
KIND = st.sampled_from(sorted(KINDS))


@budget(200)
@example(kind="stripped", text="\u200b")
@given(kind=KIND, text=SHORT)
def test_any_text(reading, kind, text):
    """It is read, with a place for each token, or refused by its field. Nothing is a bug of the server's."""
    said = reading(kind, text)
    assert isinstance(said, int) or "text" == said[0]


@budget(4)
@given(kind=KIND, part=st.text(ANY, min_size=1, max_size=3), end=st.sampled_from(["", "x", "\n", "!"]))
def test_a_megabyte_of_a_few_characters(reading, kind, part, end):
    """The same for a text of a million bytes. It takes seconds at most."""
    text = part * (1_000_000 // len(part.encode())) + end
    said = reading(kind, text)
    assert isinstance(said, int) or "text" == said[0]


FILES = [json.loads(make().to_str()) for make in KINDS.values()] + [content for content, _ in HOSTILE.values()]


@budget(50)
@given(content=mutated_json(FILES), texts=st.lists(SHORT, max_size=3))
def test_any_file(loading, content, texts):
    """It is refused with one line, or reads texts as any does."""
    said = loading(json.dumps(content), texts)
    event("refused" if isinstance(said, str) else "taken")
    if isinstance(said, str):
        assert 1 == len(said.splitlines())
    else:
        assert all(isinstance(each, int) or "text" == each[0] for each in said)
