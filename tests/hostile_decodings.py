"""Requests that a server must refuse: each field of a Decoding outside its range, and fields that contradict others.

They are for the demo models: 1,536 tokens or fewer, end token 2, 64 candidates, answers of at most 256 tokens.
"""

from weft_proto.v1 import common_pb2, generation_pb2, score_pb2, translation_pb2

INVALID, REFUSED, UNKNOWN = "INVALID_FIELD", "CONSTRAINT_REFUSED", "TOKEN_OUT_OF_RANGE"
END, BEYOND = 2, 4_000_000_000
INFINITE, NAN = float("inf"), float("nan")
# Fields of which any value is taken.
FREE = {
    "greedy",
    "alternatives",
    "sampling.top_k",
    "sampling.seed",
}


def ids(*tokens):
    """Token ids, as most fields have them."""
    return {"ids": tokens}


def phrase(*tokens):
    """A phrase of tokens."""
    return {"token_ids": ids(*tokens)}


def bias(value, *tokens):
    """One bias."""
    return {"token_ids": ids(*tokens), "bias": value}


def bad_decodings():
    """(field of Decoding, reason, the Decoding's fields): each outside its range."""
    numbers = [
        ("max_new_tokens", (0, 257, BEYOND), {}),
        ("min_new_tokens", (9, BEYOND), {"max_new_tokens": 8}),
        ("num_outputs", (0, 2, BEYOND), {}),
        ("num_outputs", (0, 2, BEYOND), {"greedy": {}}),
        ("num_outputs", (0, BEYOND), {"sampling": {}}),
        ("num_outputs", (0, BEYOND), {"alternatives": {}}),
        ("num_outputs", (0, 4), {"beams": {"num_beams": 3}}),
    ]
    inside = {
        "sampling": {
            "temperature": (0, -1, 10.1, NAN, INFINITE),
            "top_p": (0, -0.1, 1.1, NAN),
            "min_p": (-0.1, 1.1, NAN),
            "typical_p": (0, 1.1, NAN),
            "epsilon_cutoff": (-0.1, 1, NAN),
            "eta_cutoff": (-0.1, 1, NAN),
        },
        "beams": {
            "num_beams": (0, 65, BEYOND),
            "length_penalty": (-10.1, 10.1, NAN, INFINITE),
            "early_stopping": (4, -1),
        },
        "penalties": {
            "repetition": (0, 0.09, 10.1, -1, NAN),
            "encoder_repetition": (2, 0, NAN),
            "presence": (-10.1, 10.1, NAN),
            "frequency": (-10.1, 10.1, INFINITE),
            "no_repeat_ngram_size": (33, BEYOND),
            "encoder_no_repeat_ngram_size": (2, 33),
        },
        "length_decay": {"start": (257, BEYOND), "factor": (0, 0.4, 4.1, NAN)},
    }
    # Of a length_decay both fields count.
    beside = {"length_decay": {"start": 1, "factor": 2}}
    return (
        [(name, INVALID, {name: value} | more) for name, values, more in numbers for value in values]
        + [
            (f"{whole}.{name}", INVALID, {whole: beside.get(whole, {}) | {name: value}})
            for whole, fields in inside.items()
            for name, values in fields.items()
            for value in values
        ]
        + [(field, reason, asked) for field, reason, asked in (*bad_lists(), *bad_tokens(), *bad_constraints())]
    )


def bad_lists():
    """Lists that are too long, or have something in them that is none."""
    return [
        ("stop", INVALID, {"stop": "abcde"}),
        ("stop[1]", INVALID, {"stop": ["a", ""]}),
        ("stop[0]", INVALID, {"stop": ["é" * 33]}),
        ("bias", INVALID, {"bias": [bias(1, 5)] * 1025}),
        ("bias[1].bias", INVALID, {"bias": [bias(1, 5), bias(100.5, 5)]}),
        ("bias[0].bias", INVALID, {"bias": [bias(NAN, 5)]}),
        ("bias[0].token_ids", INVALID, {"bias": [bias(1)]}),
        ("bias[0].token_ids", INVALID, {"bias": [bias(1, *[5] * 33)]}),
        ("banned", INVALID, {"banned": [phrase(5)] * 1025}),
        ("banned[0].token_ids", INVALID, {"banned": [{}]}),
        ("banned[0].token_ids", INVALID, {"banned": [phrase(*[5] * 33)]}),
        ("banned[1].text", INVALID, {"banned": [phrase(5), {"text": ""}]}),
        ("banned[0].text", INVALID, {"banned": [{"text": "é" * 129}]}),
        ("suppressed.ids", INVALID, {"suppressed": ids(*[5] * 1025)}),
        ("suppressed_first.ids", INVALID, {"suppressed_first": ids(*[5] * 1025)}),
        ("stop_token_ids.ids", INVALID, {"stop_token_ids": ids(*[5] * 1025)}),
        ("prefix.token_ids", INVALID, {"prefix": {}}),
        ("prefix.token_ids", INVALID, {"prefix": phrase(*[5] * 33)}),
        ("prefix.text", INVALID, {"prefix": {"text": ""}}),
        ("prefix.text", INVALID, {"prefix": {"text": "a" * 257}}),
    ]


def bad_tokens():
    """Tokens that the model does not have, in each field that holds some."""
    return [
        ("bias[0].token_ids.ids[1]", UNKNOWN, {"bias": [bias(1, 5, BEYOND)]}),
        ("banned[0].token_ids.ids[0]", UNKNOWN, {"banned": [phrase(1536)]}),
        ("suppressed.ids[1]", UNKNOWN, {"suppressed": ids(5, 1536)}),
        ("suppressed_first.ids[0]", UNKNOWN, {"suppressed_first": ids(BEYOND)}),
        ("stop_token_ids.ids[0]", UNKNOWN, {"stop_token_ids": ids(1536)}),
        ("prefix.token_ids.ids[0]", UNKNOWN, {"prefix": phrase(1536)}),
        ("forced_first_id", UNKNOWN, {"forced_first_id": 1536}),
        ("forced_last_id", UNKNOWN, {"forced_last_id": BEYOND}),
    ]


def bad_constraints():
    """Constraints that cannot be read, or are over a limit, of each kind."""
    long = "a" * 65_537
    whole = [
        ("", INVALID, {}),
        (".json_schema", REFUSED, {"json_schema": "{"}),
        (".json_schema", REFUSED, {"json_schema": ""}),
        (".json_schema", REFUSED, {"json_schema": '{"type": "strin"}'}),
        (".json_schema", REFUSED, {"json_schema": '{"$ref": "https://example.org/schema"}'}),
        (".json_schema", REFUSED, {"json_schema": f'"{long}"'}),
        (".regex", REFUSED, {"regex": "(a"}),
        (".regex", REFUSED, {"regex": "(?=a)b"}),
        (".regex", REFUSED, {"regex": "(((a{1,999}){1,999}){1,999}){1,999}"}),
        (".regex", REFUSED, {"regex": long}),
        (".lark", REFUSED, {"lark": "start: nobody"}),
        (".lark", REFUSED, {"lark": ""}),
        (".lark", REFUSED, {"lark": "start: " + "(" * 1001 + '"a"' + ")" * 1001}),
        (".lark", REFUSED, {"lark": f'start: "{long}"'}),
        (".choice.texts", INVALID, {"choice": {}}),
        (".choice.texts", INVALID, {"choice": {"texts": ["a", "b", "a"]}}),
        (".choice.texts", INVALID, {"choice": {"texts": [f"{number}" for number in range(1025)]}}),
        (".choice.texts[1]", INVALID, {"choice": {"texts": ["a", ""]}}),
        (".choice.texts[0]", INVALID, {"choice": {"texts": ["a" * 1025]}}),
        (".choice.texts", REFUSED, {"choice": {"texts": [f"{number:01000}" for number in range(66)]}}),
    ]
    return [(f"constraint{field}", reason, {"constraint": asked}) for field, reason, asked in whole]


def contradictions():
    """(the field that is refused, what the refusal says of the other, reason, the Decoding's fields)."""
    only_a = {"constraint": {"choice": {"texts": ["abc"]}}}
    return [
        ("min_new_tokens", "max_new_tokens, 8", INVALID, {"min_new_tokens": 9, "max_new_tokens": 8}),
        ("num_outputs", "decoding.greedy", INVALID, {"greedy": {}, "num_outputs": 2}),
        ("num_outputs", "decoding.beams.num_beams", INVALID, {"beams": {"num_beams": 2}, "num_outputs": 3}),
        (
            "beams.num_beams",
            "must be 1..3 with 60 decoding.stop_token_ids",
            INVALID,
            {"beams": {"num_beams": 4}, "stop_token_ids": ids(*range(10, 70))},
        ),
        ("stop_token_ids", "decoding.beams", INVALID, {"beams": {}, "stop_token_ids": ids(*range(10, 80))}),
        ("prefix", "decoding.max_new_tokens, 2", INVALID, {"prefix": phrase(5, 6, 7), "max_new_tokens": 2}),
        (
            "prefix",
            "decoding.max_new_tokens, 1",
            INVALID,
            {"prefix": phrase(5), "forced_first_id": 6, "max_new_tokens": 1},
        ),
        ("prefix", "decoding.stop_token_ids", INVALID, {"prefix": phrase(5, 9), "stop_token_ids": ids(9)}),
        ("prefix", "ends an answer", INVALID, {"prefix": phrase(5, END)}),
        ("forced_first_id", "decoding.stop_token_ids", INVALID, {"forced_first_id": 9, "stop_token_ids": ids(9)}),
        ("forced_first_id", "ends an answer", INVALID, {"forced_first_id": END}),
        ("length_decay.start", "0..4", INVALID, {"length_decay": {"start": 5, "factor": 2}, "max_new_tokens": 4}),
        ("prefix", "decoding.constraint.choice", REFUSED, {"prefix": {"text": "x"}} | only_a),
        ("forced_first_id", "decoding.constraint.choice", REFUSED, {"forced_first_id": 97} | only_a),
        ("forced_last_id", "decoding.constraint", INVALID, {"forced_last_id": 97} | only_a),
        ("stop_token_ids", "decoding.constraint", INVALID, {"stop_token_ids": ids(97)} | only_a),
    ]


def generate(**decoding):
    """A request to go on with a prompt."""
    return generation_pb2.GenerateRequest(text="def", decoding=decoding)


def bad_requests():
    """(field, reason, the request): what belongs to a request around its Decoding, and what to a score's."""
    split = {"text": "We eat. We sleep.", "split_sentences": True}
    scored = {"model": {"name": "en-es"}, "text": "we eat", "target_text": "comemos"}

    def score(**changed):
        return score_pb2.ScoreRequest(
            **{name: value for name, value in (scored | changed).items() if value is not None}
        )

    def translate(**more):
        return translation_pb2.TranslateRequest(**more)

    return [
        ("num_top_tokens", INVALID, generation_pb2.GenerateRequest(text="def", num_top_tokens=21)),
        ("decoding.num_outputs", INVALID, translate(**split, decoding={"sampling": {}, "num_outputs": 2})),
        ("decoding.prefix", INVALID, translate(**split, decoding={"prefix": phrase(5)})),
        ("decoding.constraint", INVALID, translate(**split, decoding={"constraint": {"regex": "a"}})),
        (
            "decoding.penalties.encoder_repetition",
            INVALID,
            translate(text="we eat", decoding={"penalties": {"encoder_repetition": 2}}),
        ),
        ("decoding.prefix.text", INVALID, translate(text="we eat", decoding={"prefix": {"text": "  comemos   "}})),
        ("model.name", "MODEL_REQUIRED", score(model=None)),
        ("model.name", "WRONG_INPUT_KIND", score(model={"name": "tags"})),
        ("model.version", INVALID, score(model={"name": "en-es", "version": 0})),
        ("source", "EMPTY_INPUT", score(text=None)),
        ("text", "EMPTY_INPUT", score(text="")),
        ("text", "INPUT_TOO_LONG", score(text="we eat " * 100)),
        ("token_ids.ids", "EMPTY_INPUT", score(text=None, token_ids={})),
        ("token_ids.ids[1]", UNKNOWN, score(text=None, token_ids=ids(5, 809))),
        ("image", "WRONG_INPUT_KIND", score(text=None, image={"data": b"picture"})),
        ("text", "WRONG_INPUT_KIND", score(model={"name": "scenes"})),
        ("source_language", INVALID, score(source_language="xx")),
        ("target_language", INVALID, score(target_language="xx")),
        ("source_language", INVALID, score(model={"name": "pydocs"}, source_language="en")),
        ("target", "EMPTY_INPUT", score(target_text=None)),
        ("target_text", "EMPTY_INPUT", score(target_text="")),
        ("target_text", "INPUT_TOO_LONG", score(target_text="comemos " * 100)),
        ("target_text", "INPUT_TOO_LONG", score(target_text="a" * 1_000_000)),
        ("target_ids.ids", "EMPTY_INPUT", score(target_text=None, target_ids={})),
        ("target_ids.ids", "INPUT_TOO_LONG", score(target_text=None, target_ids=ids(*[5] * 65))),
        ("target_ids.ids[1]", UNKNOWN, score(target_text=None, target_ids=ids(5, 1274))),
        ("num_top_tokens", INVALID, score(num_top_tokens=21)),
        ("request_id", INVALID, score(request_id="x" * 65)),
    ]


def every_refusal():
    """(field, what the refusal says, reason, the request) of all of these."""
    return (
        [(f"decoding.{field}", "", reason, generate(**asked)) for field, reason, asked in bad_decodings()]
        + [(f"decoding.{field}", said, reason, generate(**asked)) for field, said, reason, asked in contradictions()]
        + [(field, "", reason, request) for field, reason, request in bad_requests()]
    )


def fields_of(message=common_pb2.Decoding.DESCRIPTOR, path=""):
    """Return the paths of all fields of a message, and of those inside, down to numbers, texts and ids."""
    paths = []
    for field in message.fields:
        inner = field.message_type
        name = f"{path}{field.name}"
        paths += fields_of(inner, f"{name}.") if inner is not None and inner.fields else [name]
    return paths
