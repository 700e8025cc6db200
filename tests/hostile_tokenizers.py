"""Tokenizers that are files of the library's kind, and that no text should meet."""

import base64

EMPTY = dict.fromkeys(["truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"])
MODEL = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
MARKS = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TEMPLATE = [{"Sequence": {"id": "A", "type_id": 0}}]


def tokenizer(**parts):
    """A tokenizers JSON of one word, with other parts."""
    return {"version": "1.0", "added_tokens": [], **EMPTY, "model": MODEL, **parts}


def replace(pattern, content, kind="Regex"):
    """A step that puts in a text."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(expression):
    """A step that cuts at an expression."""
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def normalizers(*steps):
    """Steps, one behind the other."""
    return {"type": "Sequence", "normalizers": list(steps)}


def rules(text):
    """SentencePiece's rules, of which one makes a text. Their trie leads nowhere."""
    return {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode((1024).to_bytes(4, "little") + bytes(1024) + text + b"\0").decode(),
    }


# what the file holds, what the error says
HOSTILE = {
    "doubling": (tokenizer(normalizer=normalizers(*[replace(".", "aa")] * 40)), "its normalizer may make .* of one"),
    "doubling a word": (tokenizer(normalizer=normalizers(*[replace("a", "aa", "String")] * 40)), "its normalizer may"),
    "between all": (tokenizer(normalizer=normalizers(*[replace("", "b")] * 40)), "its normalizer may make"),
    "in rooms": (tokenizer(normalizer=normalizers(*[normalizers(*[replace(".", "aa")] * 7)] * 7)), "normalizer may"),
    "bytes of bytes": (
        tokenizer(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", **MARKS}] * 40}),
        "its normalizer may make",
    ),
    "one and the other": (
        tokenizer(normalizer=normalizers(*[replace("ﷺ", "ﷺﷺ", "String"), {"type": "NFKD"}, replace(".", "ﷺ")] * 4)),
        "its normalizer may make",
    ),
    "a long text": (tokenizer(normalizer={"type": "Prepend", "prepend": "a" * 9000}), "its normalizer may make 9001 "),
    "a long rule": (tokenizer(normalizer=rules(b"a" * 9000)), "its normalizer may make 9000 characters of one"),
    "a text many times": (
        tokenizer(
            post_processor={
                "type": "TemplateProcessing", "single": TEMPLATE * 9000, "pair": TEMPLATE * 2, "special_tokens": {}
            }
        ),
        "its post_processor may make 9000 characters of one",
    ),
    "doubling an answer": (
        tokenizer(decoder={"type": "Sequence", "decoders": [replace("a", "aa", "String")] * 40}),
        "its decoder may make",
    ),
    "many steps": (tokenizer(normalizer=normalizers(*[{"type": "NFC"}] * 300)), "normalizer has 300 steps; 256 are"),
    "an expression of repetitions": (tokenizer(pre_tokenizer=split("(a+)+$")), "panics over it: .*retry-limit"),
    "repetitions of space": (tokenizer(normalizer=replace(r"(\s+)+$", "")), "panics over it: .*retry-limit"),
    "pieces of no length": (tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}), "panics over it: chunk"),
    "dropped merges": (tokenizer(model=BPE | {"dropout": 0.5}), "drops merges at random"),
}  # fmt: skip
# What it says of batches is not asked for.
PADDED = tokenizer(
    padding={
        "strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
    }
)  # fmt: skip
