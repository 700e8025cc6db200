"""What rounding costs: the score of a bundle on held-out examples, beside that of its checkpoint at fp32."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.spans import Span, spans_of
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_export.errors import CheckpointError, QualityError
from weft_export.graphs.answering import Run, reference_ids, row_of, target_tokenizer, values, write
from weft_proto.bundle_rules import is_good_enough
from weft_proto.v1 import bundle_pb2

MIN_SHARE = 0.99
"""Of its score at fp32, a bundle must keep this share."""
MIN_EXAMPLES = 100
"""Of fewer, one example is more than the share that may be lost."""
_BATCH = 50
# As a server's own, unless a request says otherwise.
_THRESHOLD = 0.5
# The longest answer that counts, as in transformers' example run_qa.py.
_MAX_ANSWER_TOKENS = 30
# Metrics of answers that stand at a place: always the same place is never right.
_OF_PLACES = ("span_f1", "answer_match")
# What a refusal at a precision proposes.
LESS = dict.fromkeys(("int4", "nf4"), "; --precision int8-weights loses less")
LESS["int4-fp16"] = "; --precision fp16 loses less"


def check_quality(
    checkpoint: Checkpoint, exact: Run, rounded: Run, examples: Sequence[Example], name: str = "int8"
) -> bundle_pb2.Quality:
    """Score a checkpoint's graphs at fp32 and rounded, by its metric. `name` is the precision's.

    Raises:
        QualityError: less than MIN_SHARE of the score is left.
        CheckpointError: the score at fp32 is no better than chance, and a share of it would say nothing.
    """
    metric = checkpoint.scored_by
    with torch.inference_mode():
        fp32_score, score = (score_of(run, checkpoint, examples, metric) for run in (exact, rounded))
    chance = chance_of(checkpoint, examples, metric)
    if fp32_score <= chance:
        figure = f"{metric} is {fp32_score:.4f}, and chance is {chance:.4f}"
        raise CheckpointError(f"the held-out examples say nothing: at fp32 {figure} (always the same answer)")
    if not is_good_enough(score, fp32_score, MIN_SHARE):
        raise QualityError(
            f"{name} costs too much: {metric} {score:.4f} on {len(examples)} held-out examples, {fp32_score:.4f} at"
            f" fp32; {MIN_SHARE:.0%} of that is needed{LESS.get(name, '')}"
        )
    return bundle_pb2.Quality(
        metric=metric, score=score, fp32_score=fp32_score, num_examples=len(examples), min_share=MIN_SHARE
    )


def chance_of(checkpoint: Checkpoint, examples: Sequence[Example], metric: str) -> float:
    """Return what always the same answer would score: the commonest one, the best set of labels, or no span.

    For F1 over labels, all examples count. Elsewhere, an example does not count itself: for one example alone, or for
    many that all differ, chance is 0.
    """
    if metric in _OF_PLACES:
        return 0.0
    if metric == "label_f1":
        return _f1_of_always_the_same(examples)
    answers: list[object] = [example.reference for example in examples]
    if metric == "mask_accuracy":
        answers = [token for example in examples for token in example.reference]
    if metric == "token_accuracy":
        tokenizer = target_tokenizer(checkpoint)
        answers = [token for example in examples for token in reference_ids(checkpoint, tokenizer, example)]
    commonest = max(Counter(answers).values(), default=0)
    share = (commonest - 1) / (len(answers) - 1) if len(answers) > 1 else 0.0
    guessed = 1 / len(checkpoint.labels) if metric == "accuracy" and len(checkpoint.labels) > 1 else 0.0
    return max(share, guessed)


def score_of(run: Run, checkpoint: Checkpoint, examples: Sequence[Example], metric: str) -> float:
    """Return the metric of a model's answers to examples, in [0, 1]."""
    hits = total = 0
    for first in range(0, len(examples), _BATCH):
        some = examples[first : first + _BATCH]
        right, asked = _COUNTS[metric](run, checkpoint, some)
        hits += right
        total += asked
    return hits / total if total else 0.0


def _accuracy(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    rows = values(run, checkpoint, [example.source for example in examples])
    answers = [checkpoint.labels[int(row.argmax())] for row in rows]
    right = sum(answer == example.reference for answer, example in zip(answers, examples, strict=True))
    return right, len(examples)


def _span_f1(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Twice the right spans, of all spans wanted and given: their quotient is F1."""
    right = total = 0
    tokenizer = read_tokenizer(checkpoint, checkpoint.text_spec.source_tokenizer)
    rows = values(run, checkpoint, [example.source for example in examples])
    for row, example in zip(rows, examples, strict=True):
        labels = [checkpoint.labels[index] for index in row.argmax(dim=-1).tolist()]
        given: set[Span] = set(spans_of(labels, example.text, tokenizer))
        right += 2 * len(given & example.reference)
        total += len(given) + len(example.reference)
    return right, total


def _f1_of_always_the_same(examples: Sequence[Example]) -> float:
    """Return the score of a model that gives the same labels to every input: the commonest, as many as score most."""
    counts = Counter(label for example in examples for label in example.reference)
    right, total, best = 0, counts.total(), 0.0
    for number, (_, count) in enumerate(counts.most_common(), start=1):
        right += count
        best = max(best, 2 * right / (number * len(examples) + total))
    return best


def _label_f1(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Twice the right labels, of all labels wanted and given: their quotient is F1, micro-averaged."""
    right = total = 0
    rows = values(run, checkpoint, [example.source for example in examples])
    for row, example in zip(rows, examples, strict=True):
        given = {label for label, score in zip(checkpoint.labels, row.tolist(), strict=True) if score >= _THRESHOLD}
        wanted = set(example.reference)
        right += 2 * len(given & wanted)
        total += len(given) + len(wanted)
    return right, total


def _answer_match(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Of each example, whether the most probable answer has the tokens of its reference, and no others."""
    right = 0
    rows = values(run, checkpoint, [example.source for example in examples])
    for row, example in zip(rows, examples, strict=True):
        starts, ends = row[example.context.start : example.context.stop].double().unbind(dim=-1)
        right += best_answer(starts, ends) == example.reference
    return right, len(examples)


def best_answer(starts: Tensor, ends: Tensor) -> tuple[int, int]:
    """Return the first and the last token of the most probable answer of at most 30 tokens.

    starts, ends: how likely each token of a context is the first and the last one, as logits [tokens].
    """
    # Of each start, the ends that count.
    reach = nn.functional.pad(ends, (0, _MAX_ANSWER_TOKENS - 1), value=-math.inf).unfold(0, _MAX_ANSWER_TOKENS, 1)
    # The probability of an answer is exp of the sum, over a number that all answers of an example share.
    first, more = divmod(int((starts[:, None] + reach).argmax()), _MAX_ANSWER_TOKENS)
    return first, first + more


def _mask_accuracy(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Of each mask, whether the likeliest token is the reference's."""
    right = total = 0
    # A run has texts with the same number of masks.
    for count in sorted({len(example.reference) for example in examples}):
        some = [example for example in examples if len(example.reference) == count]
        rows = values(run, checkpoint, [example.source for example in some])
        best = [row.argmax(dim=-1).tolist() for row in rows]
        right += sum(
            token == wanted
            for tokens, example in zip(best, some, strict=True)
            for token, wanted in zip(tokens, example.reference, strict=True)
        )
        total += count * len(some)
    return right, total


def _nearest(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Of each example, whether the nearest other one beside it has the same reference."""
    vectors = nn.functional.normalize(torch.stack(values(run, checkpoint, [each.source for each in examples])).float())
    nearest = (vectors @ vectors.T).fill_diagonal_(-math.inf).argmax(dim=1).tolist()
    right = sum(examples[place].reference == each.reference for place, each in zip(nearest, examples, strict=True))
    return right, len(examples)


def _exact_match(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    text = checkpoint.text_spec
    rows = [row_of(checkpoint, example) for example in examples]
    num_given = [len(row.tokens) for row in rows]
    write(run, checkpoint, rows, text.max_new_tokens)
    target = target_tokenizer(checkpoint)
    produced = [row.tokens[given:] for row, given in zip(rows, num_given, strict=True)]
    answers = [target.decode([token for token in tokens if token not in text.end_ids]) for tokens in produced]
    right = sum(answer == example.reference for answer, example in zip(answers, examples, strict=True))
    return right, len(examples)


def _token_accuracy(run: Run, checkpoint: Checkpoint, examples: Sequence[Example]) -> tuple[int, int]:
    """Of each token of the references, whether it is the likeliest after those before it."""
    text = checkpoint.text_spec
    tokenizer = target_tokenizer(checkpoint)
    rows, num_given = [row_of(checkpoint, example) for example in examples], []
    for row, example in zip(rows, examples, strict=True):
        num_given.append(len(row.tokens))
        row.tokens = (row.tokens + reference_ids(checkpoint, tokenizer, example))[: text.max_total_tokens]
    write(run, checkpoint, rows, max_new_tokens=0)
    right = total = 0
    for row, given in zip(rows, num_given, strict=True):
        wanted, guesses = row.tokens[given:], row.guesses[given - 1 :]
        right += sum(token == guess for token, guess in zip(wanted, guesses, strict=False))
        total += len(wanted)
    return right, total


_COUNTS: dict[str, Callable[[Run, Checkpoint, Sequence[Example]], tuple[int, int]]] = {
    "accuracy": _accuracy,
    "label_f1": _label_f1,
    "span_f1": _span_f1,
    "answer_match": _answer_match,
    "mask_accuracy": _mask_accuracy,
    "nearest": _nearest,
    "exact_match": _exact_match,
    "token_accuracy": _token_accuracy,
}
