"""Each key of a generation_config.json, set to other values: what changes an answer is followed, or told."""

import asyncio
import copy
import json

import pytest
import torch
import transformers
from config_changes import ABSENT, others
from decoder_kinds import DECODERS
from google.protobuf import json_format
from hf_models import made, token_rows
from seq2seq_kinds import SEQ2SEQ
from test_sentence_files import attempted
from test_settings import ended, served

from weft_export.bundle import manifest_of
from weft_export.converters.convert import convert
from weft_export.converters.generation import read_generation
from weft_export.converters.settings import GENERATION_KEYS
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import MANIFEST_FILE
from weft_proto.v1 import bundle_pb2

KINDS = {kind.name: kind for kind in (*SEQ2SEQ, *DECODERS)}
NEW_TOKENS = 10
# Values with an effect that no rule draws.
MORE = {
    "bad_words_ids": [[[5]], [[7, 9]]],
    "begin_suppress_tokens": [[11, 12]],
    "constraints": [[1]],
    "exponential_decay_length_penalty": [[2, 1.9]],
    "force_words_ids": [[[5]]],
    "num_beams": [3],
    "sequence_bias": [[[[13], 9.0]]],
    "stop_strings": [["a"]],
    "suppress_tokens": [[8, 9]],
    "eos_token_id": [[1, 40, 41, 42, 43]],
}


# Drafts that the model itself judges: of draws from one seed others come out, with the same probabilities.
DRAFTS = {"assistant_early_exit", "prompt_lookup_num_tokens"}


def their_answers(directory, model, rows):
    """What generate() writes by the file. With draws, from one seed."""
    config = transformers.GenerationConfig.from_pretrained(directory)
    answers = []
    for ids in rows:
        torch.manual_seed(0)
        given = torch.tensor([ids])
        answers.append(model.generate(given, attention_mask=torch.ones_like(given), generation_config=config).tolist())
    return answers


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["llama", "bart", "t5"])
@pytest.mark.parametrize("strategy", [{}, {"num_beams": 2}, {"do_sample": True}], ids=str)
def test_what_changes_an_answer_is_followed_or_told(name, strategy, tmp_path):
    """What we read of the file differs then; tests/export/converters/test_settings.py holds answers to it."""
    model = made(KINDS[name], 1, tmp_path)
    path = tmp_path / "generation_config.json"
    base = json.loads(path.read_text()) | {"max_new_tokens": NEW_TOKENS, **strategy}
    config = json.loads((tmp_path / "config.json").read_text())
    rows = token_rows(model.config.vocab_size, (4, 7), 1)
    # A generator's file asks for the model's own; here the model has none.
    model.generation_config = transformers.GenerationConfig()

    def read(given):
        path.write_text(json.dumps(given))
        return read_generation(tmp_path, config, {}, reads_source=model.config.is_encoder_decoder, has_bias=True)

    ours, theirs = read(base), their_answers_of(base, path, model, rows)
    assert theirs is not None
    faults = []
    drafts = DRAFTS if "do_sample" in strategy else set()
    for key in sorted({*transformers.GenerationConfig().to_dict(), *GENERATION_KEYS} - drafts):
        for value in (*others(key, base.get(key)), *MORE.get(key, ())):
            given = copy.deepcopy({other: each for other, each in base.items() if other != key})
            given |= {} if value is ABSENT else {key: value}
            answers = their_answers_of(given, path, model, rows)
            if answers in (None, theirs):
                continue
            try:
                is_followed = read(given) != ours
            except CheckpointError as error:
                is_followed = key in str(error)
            if not is_followed:
                faults.append((key, value))
    assert [] == faults


def their_answers_of(given, path, model, rows):
    """What generate() writes by settings; None where it refuses them."""
    path.write_text(json.dumps(given))
    return attempted(lambda: their_answers(path.parent, model, rows))


def new_tokens(directory, model, rows):
    """What generate() writes behind a prompt or a start: of each row the tokens of each output."""
    ends = transformers.GenerationConfig.from_pretrained(directory).eos_token_id
    starts = [1 if model.config.is_encoder_decoder else len(ids) for ids in rows]
    answers = zip(starts, their_answers(directory, model, rows), strict=True)
    return [[ended(output[start:], ends) for output in outputs] for start, outputs in answers]


# Keys that say which tokens are written: of rules, of bans, of lengths and of ends.
SERVED = ("begin_suppress_tokens", "exponential_decay_length_penalty", "max_new_tokens", "min_new_tokens",
          "no_repeat_ngram_size", "repetition_penalty", "sequence_bias", "suppress_tokens")  # fmt: skip
# Keys that say how a search goes.
SEARCHED = ("early_stopping", "length_penalty", "no_repeat_ngram_size", "num_beams", "num_return_sequences",
            "repetition_penalty")  # fmt: skip


class Server:
    """The bundle of a model, served by any generation_config.json: the manifest says what that says, or the bias."""

    options = ExportOptions(no_explain=True, no_score=True)

    def __init__(self, directory, home):
        self.directory, self.home = directory, home
        self.bundles, self.found = {}, {}

    def read(self):
        """The checkpoint as its files are now, and what is told of them."""
        loaded = convert(self.directory, self.options)
        return loaded.checkpoint, set(loaded.notes)

    def answers(self, checkpoint, rows):
        """What a server answers to an empty request for each row: the tokens of each output."""
        weights = tuple(each.sum().item() for each in checkpoint.model.state_dict().values())
        if weights not in self.bundles:  # tokens that are never written are in the bias of a head
            self.bundles[weights] = self.home / str(len(self.bundles)) / "m" / "1"
            export_checkpoint(self.directory, self.bundles[weights], self.options)
        path = self.bundles[weights] / MANIFEST_FILE
        manifest = json_format.Parse(path.read_text(), bundle_pb2.BundleManifest())
        said = manifest_of(checkpoint, manifest.precision, manifest.golden)
        manifest.text.CopyFrom(said.text)
        manifest.decoding.CopyFrom(said.decoding)
        asked = weights, manifest.SerializeToString(deterministic=True)
        if asked not in self.found:
            path.write_text(json_format.MessageToJson(manifest))
            answers = asyncio.run(served(self.bundles[weights], rows))
            self.found[asked] = [[list(one.token_ids) for one in (each, *each.others)] for each in answers]
        return self.found[asked]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "strategy", "keys"),
    [
        ("bart", {}, SERVED),
        ("t5", {}, SERVED),
        ("marian", {}, SERVED),
        ("llama", {}, SERVED),
        ("bart", {"num_beams": 3}, SEARCHED),
        ("llama", {"num_beams": 3}, SEARCHED),
    ],
    ids=str,
)
def test_an_answer_is_what_generate_writes_by_the_same_file(name, strategy, keys, tmp_path):
    """Whatever value a key has: tokens are served as generate() writes them, or a note tells, or it is refused."""
    directory = tmp_path / "model"
    model = made(KINDS[name], 1, directory)
    path = directory / "generation_config.json"
    base = json.loads(path.read_text()) | {"max_new_tokens": NEW_TOKENS, "forced_eos_token_id": None, **strategy}
    rows = token_rows(model.config.vocab_size, (4, 7), 1)
    model.generation_config = transformers.GenerationConfig()
    path.write_text(json.dumps(base))
    server = Server(directory, tmp_path)
    told = server.read()[1]
    faults, compared = [], 0
    for key in keys:
        for value in (*others(key, base.get(key)), *MORE.get(key, ())):
            given = {other: each for other, each in base.items() if other != key}
            given |= {} if value is ABSENT else {key: value}
            path.write_text(json.dumps(given))
            expected = attempted(lambda: new_tokens(directory, model, rows))
            try:
                checkpoint, notes = server.read()
            except CheckpointError:
                continue
            if expected is None or notes - told:
                continue
            compared += 1
            if expected != (found := server.answers(checkpoint, rows)):
                faults.append((key, value, expected, found))
    assert [] == faults
    assert compared >= len(keys)
