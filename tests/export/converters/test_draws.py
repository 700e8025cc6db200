"""What is drawn by a generation_config.json: tokens are as probable as the processors of transformers leave them."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from asked_by_file import KINDS, Server
from config_changes import ABSENT, others
from hf_models import VOCAB, made
from test_generation_fields import MORE
from test_sentence_files import attempted

from loaded import Loaded, ask
from rows_of_logits import candidates_of, settings_of
from weft_export.converters.convert import convert
from weft_export.converters.settings import GENERATION_KEYS
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.history import History
from weft_server.models.model import DecodingLimits
from weft_server.requests.decoding_config import resolve_decoding
from weft_server.sampling import sampler
from weft_server.sampling.processed_candidates import process

PROMPT = [9, 60, 61, 9, 60]
END = 1
RULED = [END, 5, 7, 9, 60, 61, 62]
# Keys that say what may be drawn, and how probable it is, with values of which each has an effect.
DRAWN = {
    "temperature": [0.4, 2.5],
    "top_k": [1, 7],
    "top_p": [0.3, 0.95],
    "min_p": [0.05, 0.4],
    "typical_p": [0.3, 0.9],
    "epsilon_cutoff": [0.003, 0.02],
    "eta_cutoff": [0.01, 0.2],
    "repetition_penalty": [0.5, 3.0],
    "no_repeat_ngram_size": [1, 2],
    "bad_words_ids": [[[60, 61], [9, 60, 62]]],
    "suppress_tokens": [[5, 61, 62]],
    "begin_suppress_tokens": [[5, 61, 62]],
    "sequence_bias": [[[[60, 61], 3.0], [[7], -4.0]]],
    "min_new_tokens": [2],
}
# All of what cuts, in one file.
TOGETHER = {
    "temperature": 1.4, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.9, "epsilon_cutoff": 0.002,
    "eta_cutoff": 0.01, "repetition_penalty": 1.3, "renormalize_logits": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A random Llama: its directory, itself, and the settings of its file, by which it draws from all tokens."""
    directory = tmp_path_factory.mktemp("draws") / "model"
    kind = KINDS["llama"]
    # Its head is its own: what the prompt says does not change with it.
    model = made(replace(kind, draw=lambda rng: kind.draw(rng) | {"tie_word_embeddings": False}), 1, directory)
    model.generation_config = transformers.GenerationConfig()
    with torch.no_grad():
        # Some tokens are far more probable than others, as after training; and those that rules are about.
        head = model.lm_head.weight
        head *= 2
        best = model(torch.tensor([PROMPT])).logits[0, -1].argmax()
        head[RULED] = head[best] * torch.linspace(0.95, 0.8, len(RULED))[:, None]
        model.save_pretrained(directory)
    base = json.loads((directory / "generation_config.json").read_text())
    return directory, model, base | {"do_sample": True, "top_k": 0, "max_new_tokens": 4, "eos_token_id": END}


def theirs(directory, model):
    """How probable each token is that generate() draws first."""
    config = transformers.GenerationConfig.from_pretrained(directory)
    given = torch.tensor([PROMPT])
    written = model.generate(
        given,
        attention_mask=torch.ones_like(given),
        generation_config=config,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return written.scores[0][0].softmax(dim=-1).numpy()


def evenly(monkeypatch, num):
    """Let draws with the seeds from 0 on go evenly through all that may be drawn, instead of at random."""
    monkeypatch.setattr(sampler, "uniform", lambda seed, _: (seed.astype(np.float64) + 0.5) / num)


def shares(tokens, num):
    """How often each token came."""
    return np.bincount(tokens, minlength=VOCAB) / num


def ours(directory, num):
    """The same of ours, of so many draws: what a server makes of the file and of the model's logits."""
    checkpoint = convert(directory, ExportOptions()).checkpoint
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_GENERATE, text=checkpoint.text)
    manifest.decoding.CopyFrom(checkpoint.decoding)
    manifest.decoding.max_new_tokens = checkpoint.max_new_tokens
    manifest.decoding.min_new_tokens = checkpoint.min_new_tokens
    decoding = resolve_decoding(common_pb2.Decoding(), manifest, DecodingLimits(0, 1, 64), len(PROMPT))
    with torch.inference_mode():
        logits = checkpoint.model.decode(torch.tensor([PROMPT]))[:, -1].numpy()
    rows = candidates_of(np.repeat(logits, num, axis=0), 64)
    ends = np.array(checkpoint.text.end_ids)
    if decoding.rules:
        one = RowRules.begin(decoding.rules, History(PROMPT, np.array([], np.int64), room=4))
        rows = process(rows, dict.fromkeys(range(num), one), np.ones(num, np.bool_), ends, lambda _: None)
    sampling = {name: getattr(decoding.sampling, name) for name in decoding.sampling.__slots__ if name != "seed"}
    settings = settings_of(num, min_new=decoding.min_new_tokens, **sampling)
    return shares(sampler.sample(rows, settings, ends)[0], num)


def test_each_key_of_draws_says_what_it_says_to_generate(llama, monkeypatch):
    """Each token's share of even draws is its probability, but for one draw; and each value changes some."""
    directory, model, base = llama
    num = 1000
    evenly(monkeypatch, num)
    changes = [{}, TOGETHER, *({key: value} for key, values in DRAWN.items() for value in values)]
    plain, faults, idle = None, [], []
    for change in changes:
        (directory / "generation_config.json").write_text(json.dumps(base | change))
        expected = theirs(directory, model)
        if np.abs(ours(directory, num) - expected).max() > 1.01 / num:
            faults.append(change)
        if plain is not None and np.abs(expected - plain).max() <= 3 / num:
            idle.append(change)
        plain = expected if plain is None else plain
    assert ([], []) == (faults, idle)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_so_it_is_served(llama, tmp_path, monkeypatch):
    """Whatever value a key has: a first token is drawn as generate() draws it, or a note tells, or it is refused."""
    directory, model, base = llama
    num = 250
    evenly(monkeypatch, num)
    path = directory / "generation_config.json"
    path.write_text(json.dumps(base))
    server, found = Server(directory, tmp_path, []), {}
    told = server.read()[1]
    faults, compared = [], 0
    for key in sorted({*transformers.GenerationConfig().to_dict(), *GENERATION_KEYS} - {"do_sample"}):
        for value in (*others(key, base.get(key)), *MORE.get(key, ()), *DRAWN.get(key, ())):
            given = {other: each for other, each in base.items() if other != key}
            given |= {} if value is ABSENT else {key: value}
            path.write_text(json.dumps(given))
            expected = attempted(lambda: theirs(directory, model))
            try:
                checkpoint, notes = server.read()
            except CheckpointError:
                continue
            if expected is None or notes - told:
                continue
            bundle = server.bundle_of(checkpoint)
            asked = (bundle / "bundle.json").read_bytes()
            if asked not in found:
                found[asked] = shares(asyncio.run(drawn(bundle, num)), num)
            compared += 1
            if np.abs(found[asked] - expected).max() > 1.01 / num:
                faults.append((key, value))
    assert [] == faults
    assert compared > 200
    assert len(found) > 20


async def drawn(bundle, num):
    """The first token of answers to requests with the seeds from 0 on, which say nothing else."""
    async with Loaded(bundle, slots=32, lanes=1) as loaded:
        asked = (
            ask(
                loaded, token_ids=common_pb2.TokenIds(ids=PROMPT), decoding=common_pb2.Decoding(sampling={"seed": seed})
            )
            for seed in range(num)
        )
        return [answer.completion.token_ids[0] for answer in await asyncio.gather(*asked)]
