"""Whatever a JSON Schema says, an answer that ends fits it, or the schema is refused."""

import json

import numpy as np
import pytest
from hypothesis import given

import tokenizer_kinds
from json_judge import judge
from mutations import budget
from schema_draws import schemas
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.logits_processors.history import History
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.grammars import Grammars

SEEDS = 40
MOST_TOKENS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """What builds constraints, a tokenizer of bytes, and how probable each token is: JSON's signs most."""
    directory = tmp_path_factory.mktemp("answers")
    tokenizer_kinds.byte_level().save(str(directory / "tokenizer.json"))
    tokenizer = Tokenizer(directory / "tokenizer.json")
    texts = [tokenizer.decode([id_]) for id_ in range(tokenizer.num_ids)]
    likely = [3.0 if text in tuple('"}]') else 2.0 if text in tuple("0123456789.-,:{[abr\\") else 0.0 for text in texts]
    grammars = Grammars(tokenizer, tokenizer.num_ids + 1, [tokenizer.num_ids], "m", "answers")
    grammars.open()
    yield grammars, tokenizer, np.array([*likely, 3.0])
    grammars.stop()


def sampled(constraint, logits, rng):
    """The ids of an answer, sampled at temperature 1 among the tokens that may come. None: it did not end."""
    row, history, ids = constraint.begin(History([])), History([], room=MOST_TOKENS), []
    end = len(logits) - 1
    while len(ids) < MOST_TOKENS:
        scores = logits.astype(np.float32)
        row.apply(None, scores, history)
        weights = np.exp(scores.astype(np.float64))
        if not weights.any():
            return None
        token = int(rng.choice(len(weights), p=weights / weights.sum()))
        if token == end:
            return ids
        row.advance(token, history)
        ids.append(token)
    return None


@budget(12)
@given(schema=schemas())
def test_answers_that_end_fit_their_schema(model, schema):
    """`jsonschema` says so of forty answers to each schema, whichever value of a name that comes twice is taken."""
    grammars, tokenizer, logits = model
    try:
        constraint = grammars.build(common_pb2.Constraint(json_schema=json.dumps(schema)))
    except InvalidRequest:
        return
    fits = judge(schema)
    for seed in range(SEEDS):
        ids = sampled(constraint, logits, np.random.default_rng(seed))
        if ids is not None:
            text = tokenizer.decode(ids)
            assert fits(text), text
