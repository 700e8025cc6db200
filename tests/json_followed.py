"""Whether a text is a whole answer under a JSON Schema, as a server follows it with a tokenizer of bytes."""

from contextlib import contextmanager

import tokenizer_kinds
from weft_proto.v1 import common_pb2
from weft_server.logits_processors.history import History
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.grammars import Grammars


@contextmanager
def following(directory):
    """Give what makes of a schema's JSON what says whether a text is a whole answer. It raises InvalidRequest."""
    tokenizer_kinds.byte_level().save(str(directory / "tokenizer.json"))
    tokenizer = Tokenizer(directory / "tokenizer.json")
    grammars = Grammars(tokenizer, tokenizer.num_ids + 1, [tokenizer.num_ids], "m", "followed")
    grammars.open()

    def follows(schema):
        constraint = grammars.build(common_pb2.Constraint(json_schema=schema))
        return lambda text: _is_whole(constraint, tokenizer.encode_framed(text))

    yield follows
    grammars.stop()


def _is_whole(constraint, ids):
    """Whether tokens may come, each after the others, and an end after the last one."""
    row, history = constraint.begin(History([])), History([], room=len(ids) + 1)
    for token in ids:
        if not row.next.allowed[token]:
            return False
        row.advance(token, history)
    return row.next.is_whole
