"""Whether the device computes what it should: beside torch, and in a batch beside alone."""

import numpy as np
import torch

from weft_export.errors import ParityError
from weft_export.verification.golden import next_logits
from weft_export.verification.tolerance import SpreadTolerance
from weft_export.verification.tolerances import tolerance_of
from weft_proto.v1 import bundle_pb2

# As the families are held to. In twelve layers of random weights an H200's logits are 0.11 of their spread off.
BF16_ON_A_DEVICE = 0.2


class Disproof(Exception):
    """What was found that must not be."""


def generated(bare, prompts, num_new):
    """Greedy tokens [prompts, num_new] of one batch, and the logits [prompts, num_new, vocab] that they came from."""
    slots, runner = bare.opened(len(prompts))
    slots.reads_all[:] = True
    tokens, logits = [], [[] for _ in prompts]
    for slot, prompt in enumerate(prompts):
        _, candidates = runner.prefill(slot, prompt)
        slots.input_ids[slot] = candidates.topk_ids[0, 0]
        logits[slot].append(candidates.logits[0].copy())
    tokens.append(slots.input_ids[:, 0].copy())
    for _ in range(num_new - 1):
        candidates = runner.decode(len(prompts))
        slots.input_ids[:, 0] = candidates.topk_ids[:, 0]
        tokens.append(slots.input_ids[:, 0].copy())
        for slot in range(len(prompts)):
            logits[slot].append(candidates.logits[slot].copy())
    return np.stack(tokens, axis=1), np.array(logits)


def _tolerance(precision, model):
    """That of an export, but at bf16: a device rounds more often than the stand-in that an export runs."""
    if precision == bundle_pb2.PRECISION_BF16:
        return SpreadTolerance(BF16_ON_A_DEVICE)
    return tolerance_of(precision, model)


def parity(bare, model, prompts, num_new):
    """The largest difference of a logit from torch in float32; each token must be the greedy one but for rounding."""
    model = model.float().eval()
    tolerance = _tolerance(bare.manifest.precision, model)
    tokens, logits = generated(bare, prompts, num_new)
    with torch.inference_mode():
        for prompt, written, actual in zip(prompts, tokens, logits, strict=True):
            fed = [*prompt.tolist(), *written[:-1].tolist()]
            expected = next_logits(model, (), fed)[len(prompt) - 1 :]
            try:
                for row, array in zip(expected, actual, strict=True):
                    tolerance.compare("parity: a step's logits", row, array)
            except ParityError as error:
                raise Disproof(str(error)) from error
            chosen = expected.gather(1, torch.from_numpy(written)[:, None])[:, 0]
            if bool((expected.max(dim=1).values - chosen > tolerance.near_tie(expected)).any()):
                raise Disproof("parity: a token is not the greedy one, and no near tie explains it")
    return {
        "largest_difference": round(tolerance.worst, 6),
        "bound": tolerance.tolerance,
        "unit": tolerance.unit,
        "tokens": int(tokens.size),
    }


def agreement(bare, prompts, num_new):
    """How many answers are the same tokens in one batch and alone: on a GPU no promise, but it should be nearly all."""
    together, _ = generated(bare, prompts, num_new)
    alone = [generated(bare, [prompt], num_new)[0][0] for prompt in prompts]
    same = sum(bool((one == other).all()) for one, other in zip(together, alone, strict=True))
    return {"same_answers": same, "of": len(prompts)}
