"""Settings of generate() become the model's own Decoding, and its answers follow them."""

import ast
import asyncio
import inspect
import json
import re
from collections import Counter
from importlib import import_module

import pytest
import torch
import transformers
from decoder_kinds import DECODERS
from google.protobuf import json_format
from hf_models import END, converted, made, token_rows
from seq2seq_kinds import SEQ2SEQ

from loaded import Loaded, ask
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.converters.convert import convert
from weft_export.converters.generation import read_generation
from weft_export.converters.settings import GENERATION_KEYS, GenerationSettings
from weft_export.errors import CheckpointError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2

KINDS = {kind.name: kind for kind in (*SEQ2SEQ, *DECODERS)}
NEW_TOKENS = 12
LENGTHS = (3, 6, 9, 4, 7, 5)
# Settings of each kind of processor that generate() runs before it takes the best.
GREEDY = {
    "repetition_penalty": 1.7,
    "no_repeat_ngram_size": 2,
    "bad_words_ids": [[5], [7, 9]],
    "begin_suppress_tokens": [11, 12],
    "sequence_bias": [[[13], -2.5], [[14, 15], 3.0]],
    "exponential_decay_length_penalty": [4, 1.3],
}
BEAMS = {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True, "num_return_sequences": 2}
SOURCE = {"encoder_repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 3}
# Some more, each with an effect: from what a model writes without it, one a row, the longest first.
EFFECTIVE = {
    "repetition_penalty": lambda _: 1.1,
    "no_repeat_ngram_size": lambda _: 2,
    "encoder_no_repeat_ngram_size": lambda _: 1,
    "encoder_repetition_penalty": lambda _: 3.0,
    "exponential_decay_length_penalty": lambda _: [3, 1.5],
    "begin_suppress_tokens": lambda written: [written[0][0], written[1][0]],
    "bad_words_ids": lambda written: [[written[2][1]], written[3][2:4]],
    "sequence_bias": lambda written: [[[written[0][2]], -2.5], [[written[1][1], 77], 6.0]],
    # Tokens that come often end answers, so that those of a search have many lengths.
    "eos_token_id": lambda written: [END, *sorted({token for row in written for token in row[4::4]} - {END})[:4]],
    **{name: lambda _, value=value: value for name, value in BEAMS.items()},
}
CHOICES = ["exponential_decay_length_penalty", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"]

# Keys of another type than theirs, and what is said behind the name of the file.
WRONG = {
    "eos_token_id": ("x", "it must be token ids"),
    "pad_token_id": (True, "it must be token ids"),
    "decoder_start_token_id": (-2, "it must be token ids"),
    "forced_bos_token_id": (1.5, "it must be token ids"),
    "suppress_tokens": ([1, "x"], "it must be token ids"),
    "max_new_tokens": ([7], "it must be a number of tokens"),
    "min_length": ("7", "it must be a number of tokens"),
    "bad_words_ids": ({"a": 1}, "it must be a list of lists of token ids"),
}


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("key", WRONG)
def test_a_key_of_another_type_is_refused_with_its_file(key, file, tmp_path):
    """Which is config.json where no other is there."""
    value, said = WRONG[key]
    if file == "generation_config.json":
        (tmp_path / file).write_text(json.dumps({key: value}))
    with pytest.raises(CheckpointError, match=rf"^{re.escape(file)}: {key} is .*: {said}$"):
        read_generation(tmp_path, {key: value}, {}, reads_source=False, has_bias=True)


def read(**given):
    """The Decoding of settings, as JSON, and what it leaves out."""
    settings = GenerationSettings(given, reads_source=True)
    return json_format.MessageToDict(settings.decoding, preserving_proto_field_name=True), settings.left


@pytest.mark.parametrize(
    ("given", "decoding"),
    [
        ({}, {}),
        ({"num_beams": 1, "temperature": 0.3, "guidance_scale": 1.0, "top_k": 7}, {}),
        ({"do_sample": True}, {"sampling": {"top_k": 50}}),
        ({"do_sample": True, "top_k": 0, "top_p": 0.5}, {"sampling": {"top_p": 0.5}}),
        ({"do_sample": True, "top_k": None, "min_p": 0.25}, {"sampling": {"top_k": 50, "min_p": 0.25}}),
        ({"num_beams": 2}, {"beams": {"num_beams": 2, "early_stopping": "EARLY_STOPPING_HEURISTIC"}}),
        (
            {"num_beams": 2, "early_stopping": "never", "length_penalty": 2},
            {"beams": {"num_beams": 2, "length_penalty": 2.0, "early_stopping": "EARLY_STOPPING_NEVER"}},
        ),
        ({"no_repeat_ngram_size": 3}, {"penalties": {"no_repeat_ngram_size": 3}}),
        ({"bad_words_ids": [[4], [5, 6]]}, {"banned": [{"token_ids": {"ids": [5, 6]}}]}),
    ],
)
def test_what_becomes_a_default(given, decoding):
    """What changes nothing is left unset, so that a request's own strategy starts from its own defaults."""
    assert (decoding, []) == read(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"num_beams": "4"},
        {"num_beams": 65},
        {"num_beams": 2.5},
        {"repetition_penalty": -1},
        {"repetition_penalty": float("nan")},
        {"do_sample": True, "top_k": None, "temperature": 0},
        {"bad_words_ids": [[]]},
        {"bad_words_ids": [["a", "b"]]},
        {"begin_suppress_tokens": [-5]},
        {"sequence_bias": [[[1], "x"]]},
        {"exponential_decay_length_penalty": [1]},
        {"guidance_scale": 2.0},
        {"num_return_sequences": 3},
        {"stop_strings": ["a"]},
        {"top_h": 0.4},
        {"max_time": 2.5},
        {"token_healing": True},
        {"no_speech_threshold": 0.6},
    ],
)
def test_what_no_decoding_has_is_told(given):
    """A setting that no request could ask for is left out, and named."""
    _, left = read(**given)

    assert [name for name in given if name not in ("do_sample", "top_k")] == [each.split(" is ")[0] for each in left]


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({}, False),
        ({"no_repeat_ngram_size": 2}, False),
        ({"num_beams": 3}, False),
        ({"num_beams": 3, "num_return_sequences": 2}, False),
        ({"num_beams": 3, "no_repeat_ngram_size": 2}, True),
        ({"num_beams": 3, "min_length": 4}, True),
    ],
)
def test_scores_that_are_made_probabilities_again_are_told_where_it_matters(given, is_told):
    """Only a search adds them up, and only a rule leaves other sums."""
    _, left = read(renormalize_logits=True, **given)

    assert ["renormalize_logits is True"] * is_told == left


def test_each_key_of_a_generation_config_is_known():
    """A newer transformers that reads more makes this fail. What it does not know itself is noted."""
    assert set() == {*transformers.GenerationConfig().to_dict()} - GENERATION_KEYS


def test_each_key_that_generate_looks_at_is_known():
    """Also what Whisper's looks at, of which GenerationConfig says nothing."""
    looked_at = set()
    for name in ("utils", "candidate_generator", "stopping_criteria", "logits_process"):
        looked_at |= names_looked_at(f"transformers.generation.{name}")
    looked_at |= names_looked_at("transformers.models.whisper.generation_whisper")
    methods = {name for name in looked_at if callable(getattr(transformers.GenerationConfig, name, None))}
    assert {"top_k", "lang_to_id", "no_speech_threshold"} <= looked_at
    # What begins with a line below it keeps there by itself.
    assert [] == sorted(name for name in looked_at - methods - GENERATION_KEYS if not name.startswith("_"))


def names_looked_at(module):
    """What the code of a module asks of a generation_config: `generation_config.x`, or by getattr."""
    names = set()
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        match node:
            case ast.Attribute(value=given, attr=name):
                pass
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[given, ast.Constant(value=name), *_]):
                pass
            case _:
                continue
        if "generation_config" in (getattr(given, "id", None), getattr(given, "attr", None)):
            names.add(name)
    return names


def notes_with(name, directory, settings, without=()):
    """The notes on a random model whose generation_config.json has some settings, and lacks some."""
    made(KINDS[name], 1, directory)
    path = directory / "generation_config.json"
    given = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({key: value for key, value in given.items() if key not in without}))
    return convert(directory, ExportOptions(), filled=False)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("llama", {"max_new_tokens": 9, "max_length": 30}, "answers do not follow: max_length is 30"),
        ("bart", {"max_length": 30}, None),
        ("llama", {}, "no file says how long answers are: generate() stops at 20 tokens, and here 127"),
        ("bart", {"max_length": 9, "new_of_version_9": [4]}, "answers do not follow: new_of_version_9 is [4]"),
        ("bart", {"max_length": 9, "new_of_version_9": None, "assistant_early_exit": 3}, None),
    ],
)
def test_a_setting_that_is_not_followed_is_told(name, settings, told, tmp_path):
    """A length that counts a prompt, generate()'s own length, and keys that nobody here knows."""
    notes = notes_with(name, tmp_path, settings).notes
    assert ([] if told is None else [True]) == [note.endswith(told or "") for note in notes]


def test_an_end_that_generate_does_not_know_is_told(tmp_path):
    """It ends nowhere then, and answers here do."""
    result = notes_with("llama", tmp_path, {"max_new_tokens": 9}, without=["eos_token_id"])
    (note,) = result.notes
    assert note.startswith("generation_config.json has no eos_token_id")
    assert [END] == list(result.checkpoint.text.end_ids)


def test_an_answer_begins_where_generate_begins_it(tmp_path):
    """Without decoder_start_token_id in its own file, at bos_token_id, whatever config.json says."""
    result = notes_with("bart", tmp_path, {}, without=["decoder_start_token_id"])
    model = transformers.BartForConditionalGeneration.from_pretrained(tmp_path)
    (written,) = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=1).tolist()
    assert model.config.decoder_start_token_id != written[0] == result.checkpoint.text.start_id


def test_penalties_of_a_source_need_one():
    """A model that reads no source has none to follow. generate() would take the prompt as one."""
    settings = GenerationSettings(SOURCE, reads_source=False)

    assert 0 == settings.decoding.ByteSize()
    assert 2 == len(settings.left)


def test_what_a_generator_does_not_force_is_told(tmp_path):
    """A first and a last token are forced behind a start token, which its answers do not have."""
    made_with("llama", tmp_path, {"forced_bos_token_id": 0, "forced_eos_token_id": END, "min_length": 0})
    (note,) = convert(tmp_path, ExportOptions()).notes

    assert note.endswith("answers do not follow: forced_bos_token_id is 0, forced_eos_token_id is 1")


def test_a_checkpoint_is_written_and_read_with_its_settings(tmp_path):
    """config.json of our own holds them as the contract names them."""
    made_with("t5", tmp_path / "theirs", BEAMS | GREEDY)
    checkpoint = converted(tmp_path / "theirs")
    save_checkpoint(tmp_path / "ours", checkpoint)

    assert 3 == checkpoint.decoding.beams.num_beams
    assert checkpoint.decoding == load_checkpoint(tmp_path / "ours").decoding


def made_with(name, directory, settings):
    """A random model whose generation_config.json has settings."""
    model = made(KINDS[name], 1, directory)
    save_settings(model, directory, settings)
    return model


def save_settings(model, directory, settings):
    """Write a model's own settings and some more to generation_config.json."""
    own = model.generation_config.to_diff_dict() | {"max_new_tokens": NEW_TOKENS, "forced_eos_token_id": None}
    model.generation_config = transformers.GenerationConfig(**own | settings)
    model.generation_config.save_pretrained(directory)


def theirs(model, rows):
    """What generate() answers to each row: the tokens and the score of each answer; no score without beams."""
    answers, ends = [], model.generation_config.eos_token_id
    for ids in rows:
        given = torch.tensor([ids])
        with torch.inference_mode():
            out = model.generate(
                given, attention_mask=torch.ones_like(given), return_dict_in_generate=True, output_scores=True
            )
        skipped = 1 if model.config.is_encoder_decoder else len(ids)
        found = [ended(row, ends) for row in out.sequences[:, skipped:].tolist()]
        scores = getattr(out, "sequences_scores", torch.zeros(len(found))).tolist()
        answers.append(list(zip(found, scores, strict=True)))
    return answers


def ended(row, ends):
    """The tokens of a row up to the first that ends it."""
    ends = ends if isinstance(ends, list) else [ends]
    return row[: next((place + 1 for place, token in enumerate(row) if token in ends), len(row))]


def answers_of(model, ids, settings):
    """What generate() answers by settings: new tokens, best first."""
    given = torch.tensor([ids])
    own = model.generation_config.to_diff_dict() | {"max_new_tokens": NEW_TOKENS, "forced_eos_token_id": None}
    config = transformers.GenerationConfig(**own | settings)
    with torch.inference_mode():
        out = model.generate(given, attention_mask=torch.ones_like(given), generation_config=config)
    skipped = 1 if model.config.is_encoder_decoder else len(ids)
    return [ended(row, config.eos_token_id) for row in out[:, skipped:].tolist()]


def effective(model, rows, names):
    """Settings of some names, of which each changes an answer of what the others make."""
    settings = {}
    for name in names:
        written = (answers_of(model, ids, settings)[0] for ids in rows)
        settings[name] = EFFECTIVE[name](sorted(written, key=len, reverse=True))
    expected = [answers_of(model, ids, settings) for ids in rows]
    for what, others in without_one(settings):
        pairs = zip(rows, expected, strict=True)
        assert any(answer != answers_of(model, ids, others) for ids, answer in pairs), f"{what} changes no answer"
    return settings


def without_one(settings):
    """The settings without each of them, and without each entry of a list of lists."""
    for name, value in settings.items():
        # What else belongs to beams is no setting of others.
        left = set(BEAMS) if name == "num_beams" else {name}
        yield name, {other: each for other, each in settings.items() if other not in left}
        if isinstance(value, list) and isinstance(value[0], list):
            for entry in value:
                yield f"{name} {entry}", settings | {name: [each for each in value if each != entry]}


def ban(model, rows, directory):
    """Ban three of the tokens that answers are made of: as a word, as a suppressed token, and as both."""
    settings = model.generation_config
    usual = Counter(token for answers in theirs(model, rows) for tokens, _ in answers for token in tokens)
    one, other, third = [token for token, _ in usual.most_common() if token != END][:3]
    settings.bad_words_ids = [[one], [END], [third], *(settings.bad_words_ids or [])]
    settings.suppress_tokens = [other, third]
    settings.save_pretrained(directory)


async def served(bundle, rows):
    """What a server answers to an empty Decoding, with scores, all rows at once."""
    async with Loaded(bundle, slots=12, lanes=1) as loaded:
        asked = (ask(loaded, token_ids=common_pb2.TokenIds(ids=ids), return_scores=True) for ids in rows)
        return [answer.completion for answer in await asyncio.gather(*asked)]


@pytest.mark.parametrize(
    ("name", "seed", "names", "more", "by_rule"),
    [
        pytest.param("t5", 2, ["encoder_repetition_penalty", "repetition_penalty", *CHOICES], {}, True, id="t5"),
        pytest.param("gpt2", 2, ["repetition_penalty", "no_repeat_ngram_size", *CHOICES], {}, False, id="gpt2"),
        pytest.param(
            "bart", 1, [*BEAMS, "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"], {}, True, id="bart-beams"
        ),
        pytest.param("llama", 2, [*BEAMS, "repetition_penalty"], {}, True, id="llama-beams", marks=pytest.mark.long),
        pytest.param("t5", 1, [], {}, True, marks=pytest.mark.long, id="t5-bans"),
        pytest.param("bart", 1, BEAMS, {"renormalize_logits": True}, False, marks=pytest.mark.long, id="bart-sums"),
    ],
)
@pytest.mark.slow
def test_an_empty_request_is_answered_as_generate_does(name, seed, names, more, by_rule, tmp_path):
    """Who asks for nothing gets what generate() gives by the checkpoint's own settings: tokens, and scores of beams.

    names: settings of which each has an effect. more: others.
    by_rule: whether the tokens that are banned for ever are suppressed ones, where a bias of the head would change the
    scores of beams, or there is none.
    """
    model = made(KINDS[name], seed, tmp_path / "model")
    rows = token_rows(model.config.vocab_size, LENGTHS, 1)
    settings = effective(model, rows, ["eos_token_id", *names] if "num_beams" in names else names)
    save_settings(model, tmp_path / "model", settings | more)
    ban(model, rows, tmp_path / "model")
    bundle = tmp_path / "bundle" / name / "1"
    report = export_checkpoint(tmp_path / "model", bundle, ExportOptions(no_explain=True, no_score=True))

    assert by_rule == (len(report.manifest.decoding.suppressed.ids) >= 3)
    for expected, found in zip(theirs(model, rows), asyncio.run(served(bundle, rows)), strict=True):
        outputs = [found, *found.others]
        assert [tokens for tokens, _ in expected] == [list(one.token_ids) for one in outputs]
        if "num_beams" in names:
            assert [pytest.approx(score, rel=1e-5, abs=1e-5) for _, score in expected] == [one.score for one in outputs]
