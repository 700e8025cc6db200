"""Each key of a generation_config.json, set to other values: what changes an answer is followed, or told."""

import copy
import json

import pytest
import torch
import transformers
from config_changes import ABSENT, others
from decoder_kinds import DECODERS
from hf_models import made, token_rows
from seq2seq_kinds import SEQ2SEQ
from test_sentence_files import attempted

from weft_export.converters.generation import read_generation
from weft_export.converters.settings import GENERATION_KEYS
from weft_export.errors import CheckpointError

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
