"""A tiny random translator with all that converted encoder-decoders need, and its answers by a plain loop in torch."""

from dataclasses import replace

import torch
from tiny import tiny_translate
from tiny_parts import END, START

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_proto.v1 import bundle_pb2

# Ids of the vocabularies that stand for languages here.
LANGUAGES = {
    "en": {"source_before": [7]},
    "pt": {"source_before": [9, 10], "source_after": [11], "target_before": [12], "target_prefix": [5]},
    "zh-Hant": {"target_prefix": [6, 8]},
}
PREFIX = [20]
MIN_NEW = 3


def polyglot() -> Checkpoint:
    """Return a translator from two languages into two others, with a prefix, a forced end and a least length."""
    checkpoint = tiny_translate()
    text = checkpoint.text
    assert text is not None
    del text.source_languages[:], text.target_languages[:]
    text.source_languages.extend(["en", "pt"])
    text.target_languages.extend(["pt", "zh-Hant"])
    text.languages.extend(bundle_pb2.Language(tag=tag, **ids) for tag, ids in LANGUAGES.items())  # type: ignore[arg-type]
    text.prefix_ids.extend(PREFIX)
    text.forced_end_id = END
    text.max_new_tokens = text.max_total_tokens - 3
    # Large enough that some answers end by themselves, and others are forced to.
    checkpoint.model.decoder.embedding.tokens.weight.data[END] *= 4
    checkpoint.golden.source_language, checkpoint.golden.target_language = "en", "pt"
    return replace(checkpoint, min_new_tokens=MIN_NEW)


def given(checkpoint: Checkpoint, text: str, source: str, target: str) -> tuple[list[int], list[int]]:
    """Return what the encoder reads for a request, and what the decoder begins with."""
    ids = read_tokenizer(checkpoint, "source.json").encode(text).ids
    of_source, of_target = LANGUAGES[source], LANGUAGES[target]
    before = of_target.get("target_before", []) + of_source.get("source_before", [])
    return before + ids + of_source.get("source_after", []), [START, *PREFIX, *of_target["target_prefix"]]


@torch.inference_mode()
def greedy(
    checkpoint: Checkpoint, ids: list[int], start: list[int], max_new: int, min_new: int
) -> tuple[list[int], list[float]]:
    """Return the answer, and the logarithm of each token's probability.

    Each token is the best of the whole model's logits. No end comes too early, and the last token is forced.
    """
    source = (torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32))
    produced: list[int] = []
    log_probs: list[float] = []
    while len(produced) < max_new and END not in produced:
        logits = checkpoint.model.decode(torch.tensor([start + produced]), *source)[0, -1]
        allowed = logits.clone()
        if len(produced) < min_new:
            allowed[END] = -torch.inf
        produced.append(END if len(produced) == max_new - 1 else int(allowed.argmax()))
        log_probs.append(float(logits.log_softmax(0)[produced[-1]]))
    return produced, log_probs
