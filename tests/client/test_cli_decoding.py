"""The command line's settings of decoding: each in its field, contradictions told, several answers readable."""

import json

import pytest
from grpc import StatusCode

from fakes import Failure
from weft._decoding import Decoding
from weft._decoding_json import decoding_from, over, plain_decoding
from weft.exceptions import InvalidRequest
from weft_proto.v1 import common_pb2 as common

FLAGS = {
    "--beams 4 --n-best 3 --length-penalty 0.5 --early-stopping never": common.Decoding(
        num_outputs=3,
        beams=common.Beams(num_beams=4, length_penalty=0.5, early_stopping=common.EARLY_STOPPING_NEVER),
    ),
    "--length-penalty -2": common.Decoding(beams=common.Beams(length_penalty=-2)),
    "--alternatives 5": common.Decoding(alternatives=common.Alternatives(), num_outputs=5),
    "--temperature 1.5 --num-outputs 2 --min-p 0.25 --typical-p 0.5 --epsilon-cutoff 0.125 --eta-cutoff 0.0625": (
        common.Decoding(
            num_outputs=2,
            sampling=common.Sampling(
                temperature=1.5, min_p=0.25, typical_p=0.5, epsilon_cutoff=0.125, eta_cutoff=0.0625
            ),
        )
    ),
    "--repetition-penalty 1.25 --presence-penalty -1 --frequency-penalty 0.5 --no-repeat-ngram 3": common.Decoding(
        penalties=common.Penalties(repetition=1.25, presence=-1, frequency=0.5, no_repeat_ngram_size=3)
    ),
    "--ban a --ban b --prefix c --min-new-tokens 2": common.Decoding(
        banned=[common.Phrase(text="a"), common.Phrase(text="b")], prefix=common.Phrase(text="c"), min_new_tokens=2
    ),
    "--regex a+": common.Decoding(constraint=common.Constraint(regex="a+")),
    "--choice a --choice b": common.Decoding(constraint=common.Constraint(choice=common.Choice(texts=["a", "b"]))),
    '--decoding {"suppressed":[1],"length_decay":{"start":2,"factor":1.5},"forced_first_id":3}': common.Decoding(
        suppressed=common.TokenSet(ids=[1]), length_decay=common.LengthDecay(start=2, factor=1.5), forced_first_id=3
    ),
    '--decoding {"num_outputs":1,"strategy":{"greedy":{}},"regex":"a"} --n-best 3 --choice b': common.Decoding(
        num_outputs=3, greedy=common.Greedy(), constraint=common.Constraint(choice=common.Choice(texts=["b"]))
    ),
}


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("verb", ["translate", "caption", "generate"])
def test_each_flag_stands_in_its_field(weft_command, server, picture, verb, flags):
    """The same flags for every verb that writes; `--decoding` takes the rest, and the other flags go before it."""
    code, _, error = weft_command(verb, picture if verb == "caption" else "a b", *flags.split())

    assert (0, "") == (code, error)
    assert FLAGS[flags] == server.servicer.seen[0].request.decoding


def test_a_schema_and_a_grammar_are_files(weft_command, server, tmp_path):
    """Their content is sent as it stands."""
    path = tmp_path / "given"
    path.write_text('{"type": "object"}\n')
    weft_command("generate", "a", "--json-schema", path)
    weft_command("generate", "a", "--lark", path)

    first, second = (seen.request.decoding.constraint for seen in server.servicer.seen)
    assert path.read_text() == first.json_schema == second.lark


CONTRADICTIONS = [
    ("--beams 2 --temperature 1", "--temperature does not go with --beams"),
    ("--seed 1 --early-stopping full", "--seed does not go with --early-stopping"),
    ("--alternatives 2 --beams 2", "--beams does not go with --alternatives"),
    ("--alternatives 2 --num-outputs 2", "--alternatives does not go with --num-outputs"),
    ("--regex a --choice b", "--regex does not go with --choice"),
    ("--json-schema no/such.json", "--json-schema: cannot read no/such.json: No such file or directory"),
    ("--decoding {", "--decoding: is no JSON: "),
    ("--decoding []", "--decoding: must be an object, not list"),
    ('--decoding {"beams":4}', "--decoding.beams: is unknown; there are banned, bias, "),
    ('--decoding {"strategy":"beams"}', "--decoding.strategy: must be an object with one of greedy, sampling, beams, "),
    (
        '--decoding {"strategy":{"beams":{"n":4}}}',
        "--decoding.strategy.beams.n: is unknown; there are early_stopping, ",
    ),
    ('--decoding {"length_decay":{"start":4}}', "--decoding.length_decay: needs start and factor"),
    ('--decoding {"bias":[5]}', "--decoding.bias[0]: must be an object, not int"),
]


@pytest.mark.parametrize(("flags", "said"), CONTRADICTIONS)
def test_contradictions_are_told(weft_command, server, flags, said):
    """One line with the names that were typed, exit code 2, and nothing is asked."""
    code, out, error = weft_command("generate", "a", *flags.split())

    assert (2, "", f"weft: {said}") == (code, out, error[: len(said) + 6])
    assert 1 == error.count("\n")
    assert [] == server.servicer.seen


SAID = {
    "decoding.beams.num_beams must be 1..8, not 9": "--beams must be 1..8, not 9",
    "decoding.banned[2].text must be 1..256 bytes": "--ban must be 1..256 bytes",
    "decoding.num_outputs must be at most decoding.beams.num_beams": "--num-outputs must be at most --beams",
    "decoding.penalties.repetition must be 0.1..10": "--repetition-penalty must be 0.1..10",
    "decoding.constraint.choice.texts[3] is given twice": "--choice is given twice",
    "decoding.constraint.json_schema: unclosed": "--json-schema: unclosed",
    "decoding.prefix breaks decoding.constraint.regex": "--prefix breaks --regex",
    "decoding.length_decay.factor must be 0.5..4": "decoding.length_decay.factor must be 0.5..4",
    "num_top_tokens must be 0..20": "--top-logprobs must be 0..20",
}


@pytest.mark.parametrize("said", SAID)
def test_a_refusal_names_what_was_typed(weft_command, server, said):
    """A field within a flag's own is told by the flag, one without a flag by its name."""
    server.servicer.script.append(Failure(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", said))
    assert (2, "", f"weft: {SAID[said]}\n") == weft_command("generate", "a")


def test_several_answers_are_lines(weft_command):
    """Best first; with --scores each behind its score; streamed they are the same."""
    flags = ("--beams", "4", "--n-best", "3")
    plain = "b a\na b\nb a\n"
    assert (0, plain, "") == weft_command("translate", "a b", *flags)
    code, out, _ = weft_command("translate", "a b", *flags, "--scores")
    assert (0, "-0.2500  b a\n-0.5000  a b\n-0.7500  b a\n") == (code, out)


def test_a_stream_without_pieces_prints_its_end(weft_command, server):
    """Of a search the final message is all that comes."""
    server.servicer.only_final = True
    assert (0, "b a\na b\n", "") == weft_command("translate", "a b", "--n-best", "2", "--stream")
    lines = weft_command("translate", "a b", "--n-best", "2", "--stream", "--json")[1].splitlines()
    assert ["a b"] == [other["text"] for other in json.loads(lines[-1])["final"]["others"]]


def test_answers_of_many_lines_are_told_apart(weft_command, server):
    """A line of three dashes stands between them."""
    server.servicer.glue = "\n"
    assert (0, "b\na\n---\na\nb\n", "") == weft_command("generate", "a b", "--num-outputs", "2")
    assert (0, "b\na\n", "") == weft_command("generate", "a b")


def test_top_tokens_are_a_column(weft_command, server):
    """--top-logprobs shows the most probable tokens of each step on stderr, and each answer's in a table of its own."""
    code, out, error = weft_command("generate", "a b", "--top-logprobs", "2", "--beams", "2", "--n-best", "2")
    lines = [" ".join(line.split()) for line in error.splitlines()]

    assert (0, "b a\na b\n") == (code, out)
    assert ["answer 1", "answer 2"] == [line for line in lines if line.startswith("answer")]
    assert ["score -0.2500", "score -0.5000"] == [line for line in lines if line.startswith("score")]
    at = lines.index("'b' 0 0.6065 0.6065 'b'")
    assert "0.2231 '1'" == lines[at + 1]
    assert server.servicer.seen[0].request.return_scores


def test_a_prompt_says_how_probable_it_is(weft_command):
    """--prompt-scores: the sum and the perplexity on stderr, each token's in JSON."""
    code, out, error = weft_command("generate", "a b c", "--prompt-scores")
    assert (0, "c b a\n", "prompt: log-probability -2.0000, perplexity 2.718\n") == (code, out, error)
    answer = json.loads(weft_command("generate", "a b c", "--prompt-scores", "--json")[1])
    assert [-1.0, -1.0] == answer["prompt_log_probs"]


def test_what_json_prints_can_be_given_again(weft_command, server):
    """The decoding of an answer's JSON is a --decoding, and makes the same request."""
    flags = ("--beams", "3", "--ban", "x", "--max-new-tokens", "5", "--regex", "a")
    first = json.loads(weft_command("generate", "a b", *flags, "--json")[1])
    weft_command("generate", "a b", "--decoding", json.dumps(first["decoding"]))

    seen = [seen.request.decoding for seen in server.servicer.seen]
    assert seen[0].beams == seen[1].beams
    assert seen[0].constraint == seen[1].constraint
    assert list(seen[0].banned) == list(seen[1].banned)


def test_a_decoding_goes_through_json_unchanged():
    """Both ways, nulls being unset."""
    plain = plain_decoding(decoding_from({"bias": [{"token_ids": [1], "bias": 2.0}], "stop": ["x"], "regex": None}))
    assert plain == plain_decoding(decoding_from(json.loads(json.dumps(plain))))


def test_one_constraint_takes_the_place_of_another():
    """The rest of the base stays."""
    base = Decoding(max_new_tokens=3, regex="a", stop=("x",))
    assert Decoding(max_new_tokens=3, choices=("b",), stop=("x",)) == over(Decoding(choices=("b",)), base)
    with pytest.raises(InvalidRequest, match="suppressed"):
        decoding_from({"surpressed": [1]})


def test_cached_tokens_are_told(weft_command):
    """By --verbose, where there are some."""
    assert "3 in (2 cached), 3 out" in weft_command("generate", "a b c", "-v", "--cache-salt", "x")[2]
    assert "3 in, 3 out" in weft_command("generate", "a b c", "-v")[2]
