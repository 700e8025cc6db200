"""Candidates and settings made of logits, as a decoder and a request would."""

from dataclasses import replace

import numpy as np

from weft_server.sampling.candidates import Candidates
from weft_server.sampling.sampler import Settings

NO_END = np.array([], np.int64)


def candidates_of(logits, num_candidates):
    """What a decoder would say of logits [n, vocab]: K best, normaliser, everything."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :num_candidates]
    peak = logits.max(axis=1).astype(np.float64)
    total = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak
    return Candidates(np.take_along_axis(logits, ids, 1), ids.astype(np.int64), total.astype(np.float32), logits)


def weighed(candidates, logits, settings):
    """The same of a run that was told the rows' temperatures: what all tokens of each weigh, as a graph says it."""
    gaps = logits - candidates.topk_logits[:, :1]
    total = np.exp(gaps / settings.divisors(slice(None))[:, None]).sum(axis=1, dtype=np.float32)
    return replace(candidates, total_weights=total)


def settings_of(n, temperature=1.0, top_k=0, top_p=1.0, seed=None, step=0, min_new=0, **cuts):
    """The same wishes for n rows, each with its own seed."""
    return Settings(
        temperature=np.full(n, float(temperature)),
        top_k=np.full(n, top_k, np.int64),
        top_p=np.full(n, float(top_p)),
        seed=np.arange(n, dtype=np.uint64) if seed is None else np.full(n, seed, np.uint64),
        step=np.full(n, step, np.int64),
        min_new=np.full(n, min_new, np.int64),
        min_p=np.full(n, float(cuts.get("min_p", 0))),
        typical_p=np.full(n, float(cuts.get("typical_p", 1))),
        epsilon_cutoff=np.full(n, float(cuts.get("epsilon_cutoff", 0))),
        eta_cutoff=np.full(n, float(cuts.get("eta_cutoff", 0))),
    )
