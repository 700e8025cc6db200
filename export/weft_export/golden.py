"""The golden request of a bundle and its answer by torch: what a server must reproduce before it is ready."""

import torch
from torch import Tensor, nn

from weft_export.answering import Row, Run, probabilities, write
from weft_export.checkpoint import Checkpoint
from weft_export.errors import CheckpointError, ExportError
from weft_export.pixels import read_pixel_values
from weft_export.specs import LABELS
from weft_export.tokenizer import encode_source, read_tokenizer
from weft_export.writer import Writer
from weft_proto.v1 import bundle_pb2

# A golden token must win by this much in its logit, so that another processor's rounding picks it too.
MIN_MARGIN = {
    bundle_pb2.PRECISION_FP32: 1e-2,
    bundle_pb2.PRECISION_FP16: 2e-1,
    bundle_pb2.PRECISION_BF16: 2e-1,
    bundle_pb2.PRECISION_INT8: 2e-1,
}
# What a server allows a golden probability; weft_server.golden has the same.
PROBABILITY_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-3,
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 3e-2,
    bundle_pb2.PRECISION_INT8: 1e-2,
}


def golden_of(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, parity_error: float = 0.0
) -> bundle_pb2.Golden:
    """Answer a checkpoint's golden request, cutting produced tokens before the first close call.

    A call is close within MIN_MARGIN, or within twice parity_error, at int8 and bf16 a share of the logits' spread.

    Raises:
        ExportError: not even the first token is a clear one.
    """
    golden = bundle_pb2.Golden()
    golden.CopyFrom(checkpoint.golden)
    source = _source(checkpoint)
    with torch.inference_mode():
        if checkpoint.task in LABELS:
            golden.probabilities.extend(checkpoint.model(*source).softmax(dim=-1)[0].flatten().tolist())
            return golden
        tokens = _greedy(checkpoint, source, MIN_MARGIN[precision], parity_error)
    if not tokens:
        raise ExportError("the golden request has no clear first token; choose another one in config.json")
    golden.token_ids.extend(tokens)
    return golden


def check_golden(
    checkpoint: Checkpoint, golden: bundle_pb2.Golden, run: Run, precision: bundle_pb2.Precision.ValueType
) -> None:
    """Answer the golden request with the exported graphs and compare, as a server does before it is ready.

    Raises:
        ExportError: the tokens differ, or a probability by more than PROBABILITY_TOLERANCE.
    """
    source = _source(checkpoint)
    if checkpoint.task in LABELS:
        with torch.inference_mode():
            (actual,) = probabilities(run, checkpoint, [source[0][0]])
        error = float((actual.float().flatten() - torch.tensor(golden.probabilities)).abs().max())
        tolerance = PROBABILITY_TOLERANCE[precision]
        if not error <= tolerance:  # said this way round, NaN fails
            raise ExportError(f"the golden answer of the graphs differs by {error:.2g}; a server allows {tolerance:g}")
        return
    text = checkpoint.text
    assert text is not None
    starts = text.HasField("start_id")
    row = Row(source[0][0], [text.start_id]) if starts else Row(None, source[0][0].tolist())
    num_given = len(row.tokens)
    with torch.inference_mode():
        write(run, checkpoint, [row], len(golden.token_ids))
    if row.tokens[num_given:] != list(golden.token_ids):
        answer = f"{row.tokens[num_given:]} instead of {list(golden.token_ids)}"
        raise ExportError(f"the golden answer of the graphs differs: {answer}; a server would refuse the bundle")


def next_logits(model: nn.Module, source: tuple[Tensor, ...], tokens: list[int]) -> Tensor:
    """Return logits [seq, vocab] after each of the tokens, start or prompt included, computed from scratch."""
    assert isinstance(model, Writer)
    return model.decode(torch.tensor([tokens]), *source)[0]


def _greedy(checkpoint: Checkpoint, source: tuple[Tensor, ...], min_margin: float, error: float) -> list[int]:
    text, max_new_tokens = checkpoint.text, checkpoint.max_new_tokens
    assert text is not None
    assert max_new_tokens is not None
    if text.HasField("start_id"):
        tokens, source_in = [text.start_id], source
    else:
        tokens, source_in = source[0][0].tolist(), ()
    num_given = len(tokens)
    max_new_tokens = min(max_new_tokens, text.max_total_tokens - (0 if text.HasField("start_id") else num_given))
    # What was given does not end the answer: a start may be an end token too, and a prompt may end in one.
    while len(tokens) - num_given < max_new_tokens and not any(token in text.end_ids for token in tokens[num_given:]):
        logits = next_logits(checkpoint.model, source_in, tokens)[-1]
        best = logits.topk(2)
        margin = max(min_margin, 2 * error * float(logits.std(correction=0)))
        if float(best.values[0] - best.values[1]) < margin:
            break
        tokens.append(int(best.indices[0]))
    return tokens[num_given:]


def _source(checkpoint: Checkpoint) -> tuple[Tensor, ...]:
    if checkpoint.image is not None:
        name = checkpoint.golden.image_path
        try:
            return (torch.from_numpy(read_pixel_values(checkpoint.files[name], checkpoint.image))[None],)
        except Exception as error:  # a broken picture makes Pillow raise nearly anything
            raise CheckpointError(f"{name} is not a PNG, JPEG or WebP picture: {error}") from error
    assert checkpoint.text is not None
    tokenizer = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer)
    try:
        ids = encode_source(checkpoint, tokenizer, checkpoint.golden.text).ids
    except CheckpointError as error:
        raise CheckpointError(f"the golden text {error}") from error
    return torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32)
