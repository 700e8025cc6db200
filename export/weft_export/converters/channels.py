"""Answers in channels ("harmony", gpt-oss): the marks of channels stay in the text of an answer.

transformers leaves them out with all special tokens: what is thought and what is said would then be one text.
"""

import json

MARKS = frozenset({"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"})
NOTE = (
    "answers go through channels, whose marks stay in their texts: OpenAI's route tells them apart, and in others the"
    " answer is what stands behind the last <|message|>"
)


def with_marks(tokenizer: bytes) -> bytes:
    """Return a tokenizer.json in which the marks of channels are no special tokens."""
    content = json.loads(tokenizer)
    for token in content.get("added_tokens", ()):
        token["special"] &= token["content"] not in MARKS
    return json.dumps(content, ensure_ascii=False).encode()
