"""Directories with a tokenizer.json: it is read as transformers reads it, which is not always as it is."""

import json

import pytest
from tokenizer_directories import OLDER, byte_level, config_of, hard_texts, reference, spm, word_piece, write
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from weft_export.converters.text.side import read_text_side
from weft_export.converters.text.spm_model import read_spm_model
from weft_export.converters.text.vocabulary import of_spm


def gpt2_json(pre_tokenizer=None, normalizer=None, before=()):
    """A byte-level JSON with other words and bytes, and tokens before each text."""
    tokenizer = Tokenizer.from_str(byte_level())
    tokenizer.pre_tokenizer = pre_tokenizer or tokenizer.pre_tokenizer
    tokenizer.normalizer = normalizer
    ids = [(token, tokenizer.token_to_id(token)) for token in before]
    tokenizer.post_processor = processors.TemplateProcessing(single=[*before, "$A"], special_tokens=ids)
    return tokenizer


LLAMA_3_WORDS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+|[^\s\p{N}]+"), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)


def llama_2_json(directory):
    """Llama 2's tokenizer.json of its first years: a normalizer puts a space before each part of a text."""
    (directory / "spm").write_bytes(
        spm("bpe", "identity", add_dummy_prefix=True, remove_extra_whitespaces=False, byte_fallback=True)
    )
    pieces = of_spm(read_spm_model(directory / "spm"))
    model = models.BPE(dict(pieces.ids), pieces.merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single=["<s>", "$A"], special_tokens=[("<s>", 1)])
    return tokenizer


def bert_json():
    """BERT's, with truncation and padding switched on, as sentence encoders have it."""
    tokenizer = Tokenizer(models.WordPiece({piece: id_ for id_, piece in enumerate(word_piece())}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    tokenizer.enable_truncation(1000)
    tokenizer.enable_padding(length=None)
    return tokenizer


FAST = "PreTrainedTokenizerFast"
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)])
# model_type, tokenizer_config.json or None, the tokenizer, other files
DIRECTORIES = {
    "llama-3": lambda _: (
        "llama",
        {"tokenizer_class": FAST, "bos_token": "<|endoftext|>", "eos_token": "</s>", "model_max_length": 4096},
        gpt2_json(LLAMA_3_WORDS, before=["<|endoftext|>"]),
        {},
    ),
    "llama-3-misnamed": lambda _: (
        "llama",
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"},
        gpt2_json(LLAMA_3_WORDS),
        {},
    ),
    "llama-2": lambda path: (
        "llama",
        {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True, "bos_token": "<s>"},
        llama_2_json(path),
        {},
    ),
    "mistral": lambda path: (
        "mistral",
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
        | {"model_max_length": None, "max_len": 99},
        llama_2_json(path),
        {},
    ),
    "phi-3": lambda path: (
        "phi3",
        {
            "tokenizer_class": "LlamaTokenizer",
            "bos_token": "<s>",
            "added_tokens_decoder": {
                "1200": {"content": "<|end|>", "rstrip": True, "special": True, "normalized": False},
                "1201": {"content": "<|user|>", "rstrip": True, "special": True, "normalized": False},
                "2": {"content": "</s>", "rstrip": True, "special": False, "normalized": False},
            },
        },
        llama_2_json(path),
        {},
    ),
    "smollm2": lambda _: (
        "llama",
        {
            "tokenizer_class": "GPT2Tokenizer",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "max_len": 512,
        },
        gpt2_json(DIGITS),
        {},
    ),
    "bloom": lambda _: ("bloom", {"tokenizer_class": "BloomTokenizerFast"}, gpt2_json(LLAMA_3_WORDS), {}),
    "falcon": lambda _: ("falcon", {"tokenizer_class": FAST, "eos_token": "</s>"}, gpt2_json(DIGITS), {}),
    "gpt-neox": lambda _: (
        "gpt_neox",
        {"tokenizer_class": "GPTNeoXTokenizer"},
        gpt2_json(normalizer=normalizers.NFC(), before=["<s>"]),
        {},
    ),
    "modernbert": lambda _: (
        "modernbert",
        {"tokenizer_class": FAST, "cls_token": "<s>", "sep_token": "</s>"},
        gpt2_json(normalizer=normalizers.NFC(), before=["<s>"]),
        {},
    ),
    "qwen-2": lambda _: (
        "qwen2",
        {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "</s>", "additional_special_tokens": ["<|im_start|>"]},
        gpt2_json(LLAMA_3_WORDS, normalizers.NFC()),
        {},
    ),
    "bert": lambda _: ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": True}, bert_json(), {}),
    "bert-cased-by-config": lambda _: ("bert", {"do_lower_case": False}, bert_json(), {}),
    "bert-as-it-is": lambda _: ("bert", {"tokenizer_class": FAST}, bert_json(), {}),
    "older-files": lambda _: (
        "gpt2",
        None,
        gpt2_json(),
        {
            "special_tokens_map.json": {
                "eos_token": {"content": "<|end|>", "lstrip": False, "rstrip": True, "normalized": False},
                "additional_special_tokens": ["<|user|>"],
            },
            "added_tokens.json": {"<|user|>": 900, "<|end|>": 901, "plain": 902},
        },
    ),
}


@pytest.fixture(scope="module", params=DIRECTORIES)
def directory(request, tmp_path_factory):
    """A directory with a tokenizer.json."""
    path = tmp_path_factory.mktemp(request.param)
    model_type, options, tokenizer, files = DIRECTORIES[request.param](path)
    return write(path, model_type, options, {"tokenizer.json": tokenizer.to_str(), **files})


def test_a_tokenizer_json_is_read_as_transformers_reads_it(directory):
    """Ids and texts of all hard texts are equal, special tokens and the greatest length too."""
    tokenizer = reference(directory)
    side = read_text_side(directory, config_of(directory), 5000)
    ours = Tokenizer.from_buffer(side.files[side.source_tokenizer])
    expected = tokenizer(hard_texts())["input_ids"]
    for text, ids, own in zip(hard_texts(), expected, ours.encode_batch(hard_texts()), strict=True):
        assert ids == own.ids, text
        assert tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == ours.decode(ids)
    expected = [getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "unk")]
    assert expected == [side.bos_id, side.eos_id, side.pad_id, side.unk_id]
    assert side.max_length == (tokenizer.model_max_length if tokenizer.model_max_length < 10**9 else None)
    assert () == side.languages


def test_a_note_says_that_a_tokenizer_json_is_not_followed(tmp_path):
    """Where transformers makes another tokenizer of a file's pieces, a note says so. Else there is none."""
    noted = {}
    for name in ("llama-2", "mistral", "bert", "bert-cased-by-config"):
        path = tmp_path / name
        path.mkdir()
        model_type, options, tokenizer, _ = DIRECTORIES[name](path)
        write(path, model_type, options, {"tokenizer.json": tokenizer.to_str()})
        noted[name] = [note[:30] for note in read_text_side(path, config_of(path), 5000).notes]
    said = ["tokenizer.json reads ' a' othe"]
    assert {"llama-2": said, "mistral": [], "bert": [], "bert-cased-by-config": noted["bert-cased-by-config"]} == noted
    assert 1 == len(noted["bert-cased-by-config"])


def test_added_tokens_without_an_embedding_are_plain_text(tmp_path):
    """A token that was added behind the embedding's end is taken out, and a note says so."""
    options = {"tokenizer_class": FAST, "additional_special_tokens": ["<image>"]}
    write(tmp_path, "falcon", options, {"tokenizer.json": gpt2_json().to_str()})
    side = read_text_side(tmp_path, config_of(tmp_path), 900)
    assert ("1 added tokens have no embedding, and are read as plain text: <image>",) == side.notes
    ours = Tokenizer.from_buffer(side.files["tokenizer.json"])
    assert ours.token_to_id("<image>") is None
    assert "<image>" == ours.decode(ours.encode("<image>").ids)
    content = json.loads(side.files["tokenizer.json"])
    assert 900 > max(content["model"]["vocab"].values())


NAMED = {"image_token": "<img>"}


@pytest.mark.parametrize(
    "options",
    [
        {"additional_special_tokens": ["<mark>"], "extra_special_tokens": NAMED},
        {"model_specific_special_tokens": NAMED},
        {"model_specific_special_tokens": NAMED, "video_token": "<mark>"},
        {"model_specific_special_tokens": NAMED, "extra_special_tokens": {"video_token": "<mark>"}},
        {"additional_special_tokens": ["<mark>"], "extra_special_tokens": ["<img>"]},
        {"additional_special_tokens": ["<mark>"], "image_token": "<img>"},
    ],
    ids=", ".join,
)
def test_special_tokens_of_two_keys_are_read_as_transformers_reads_them(options, tmp_path):
    """Some have names and some have none; each is cut out of a text, or none of it is."""
    (tmp_path / "tokenizer.json").write_text(gpt2_json().to_str())
    write(tmp_path, "llama", {"tokenizer_class": FAST, **options}, {})
    theirs = reference(tmp_path)
    side = read_text_side(tmp_path, config_of(tmp_path), len(theirs) + 8)
    ours = Tokenizer.from_str(side.files[side.source_tokenizer].decode())
    for text in ("a<mark>b", "x<img>y", "<img><mark>"):
        assert theirs(text).input_ids == ours.encode(text).ids
        assert theirs.decode(theirs(text).input_ids, skip_special_tokens=True) == ours.decode(ours.encode(text).ids)


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({"padding_side": "left", "image_token": "<image>", "backend": "tokenizers"}, []),
        ({"errors": "strict"}, ["errors is 'strict': bytes that are no UTF-8 are written as U+FFFD"]),
        ({"new_of_version_9": 2}, ["tokenizer_config.json has keys that are not known here, and that are not"]),
    ],
)
def test_an_option_that_is_not_followed_is_noted(options, notes, tmp_path):
    """Whoever wrote it."""
    (tmp_path / "tokenizer.json").write_text(gpt2_json().to_str())
    write(tmp_path, "llama", {"tokenizer_class": FAST, **options}, {})
    told = read_text_side(tmp_path, config_of(tmp_path), 10_000).notes
    assert [note[: len(start)] for note, start in zip(told, notes, strict=True)] == notes


def test_spaces_that_are_cleaned_up_are_told_of(tmp_path):
    """Where transformers does it behind the decoder: not for bytes, and not where the decoder does it itself."""
    directories = {"mt5": ("t5", True), "qwen2": ("qwen2", False)}
    for name, (kind, expected) in directories.items():
        model_type, options, files = OLDER[kind]()
        write(tmp_path / name, model_type, options | {"clean_up_tokenization_spaces": True}, files)
        assert expected == read_text_side(tmp_path / name, config_of(tmp_path / name), 100_000).cleans_up
