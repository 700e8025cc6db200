"""What a class of config.json takes of the options: known before torch is imported, and as its converter says it."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from captioner_kinds import CAPTIONERS
from decoder_kinds import DECODERS
from encoder_kinds import CLASSIFIERS
from hf_models import change_config, made
from picture_kinds import PICTURES
from prompted_kinds import PROMPTED, made_prompted
from question_kinds import ASKING, made_asking
from seq2seq_kinds import SEQ2SEQ
from test_captioners import with_processor
from test_matching import made_pair
from test_pictures import made_with_processor
from test_whisper import made_whisper
from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS as WRONGLY_NAMED
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from few import few_of
from weft_export.converters.classes import check_class, check_length, takes_file
from weft_export.converters.convert import check_options, convert, converter_of
from weft_export.converters.registry import MODULE_OF, all_converters
from weft_export.converters.text.kinds import AS_IT_IS, class_of, kind_of
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import as_asked, check_device, examples_of
from weft_export.families.registry import family_of
from weft_export.options import ExportOptions
from weft_proto.tasks import TASKS

OPTIONS = {
    "labels": {"labels": Path("labels.txt")},
    "label_text": {"label_text": "a {}"},
    "pairs": {"pairs": True},
    "pooling": {"pooling": "mean"},
    "truncate": {"truncate": True},
    "max_tokens": {"max_tokens": 8},
    "max_source_tokens": {"max_source_tokens": 8},
    "max_pixels": {"max_pixels": 4000},
    "truncate and pooling": {"truncate": True, "pooling": "mean"},
}
CLASSES = {(each.model_type, name) for each in all_converters() for name in each.architectures}


def is_taken(check):
    """Whether options are not refused."""
    try:
        check()
    except ExportError:
        return False
    return True


@pytest.mark.parametrize("has_modules", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_refused_by_the_name_of_a_class_where_its_converter_refuses_it(name, has_modules, tmp_path):
    """Of each class of each model_type: no converter would say otherwise, minutes later."""
    (tmp_path / "labels.txt").write_text("cat\n")
    given = {key: tmp_path / value if key == "labels" else value for key, value in OPTIONS[name].items()}
    options = ExportOptions(**given)
    embeds = has_modules or options.pooling is not None
    configs = [{"model_type": model_type, "architectures": [each]} for model_type, each in sorted(CLASSES)]
    late = {"has_labels": bool(options.labels), "embeds": embeds}
    expected = [is_taken(lambda c=config: check_options(converter_of(c, **late), options)) for config in configs]
    actual = [is_taken(lambda c=config: check_class(c, options, embeds=embeds)) for config in configs]

    assert expected == actual
    assert {True, False} == set(actual)


def test_a_class_answers_to_a_file_where_its_task_does():
    """Pictures and recordings. A whole CLIP is asked a picture, with labels that stay or without.

    A model that answers is asked a picture too, or a question about one of ours.
    """
    for config in ({"model_type": kind, "architectures": [name]} for kind, name in sorted(CLASSES)):
        row = TASKS[family_of(converter_of(config).family).task]
        takes = (row.takes_image or row.takes_audio) and not row.takes_question
        assert takes == bool(takes_file(config)), config
        assert row.takes_audio == ("recording" in takes_file(config)), config


OF_GRAPHS = (
    ExportOptions(mixed_runs=True),
    ExportOptions(paged=True, precision="fp16"),
    ExportOptions(adapters=2),
    ExportOptions(precision="fp16"),
    ExportOptions(precision="bf16"),
    ExportOptions(precision="int8", held_out=Path("held_out.jsonl")),
)
SIZED = {
    **{kind.name: partial(made, kind, 0) for kind in (*DECODERS, *CLASSIFIERS, *SEQ2SEQ, *CAPTIONERS)},
    **{kind.name: partial(made_with_processor, kind, 0) for kind in PICTURES},
    # Positions are a bias there, or heads that turn.
    **{
        f"falcon {seed}": partial(made, next(each for each in DECODERS if each.name == "falcon"), seed)
        for seed in (1, 2)
    },
    **{kind.name: partial(made_asking, kind, 0) for kind in ASKING},
    **{kind.name: partial(made_prompted, kind, 0) for kind in PROMPTED},
    "whisper": made_whisper,
    "whole clip": partial(made_pair, 0),
}


@pytest.mark.parametrize(
    "name",
    few_of(
        SIZED, ("llama", "florence2", "blip-2-t5", "bloom", "bert", "marian", "vit", "resnet", "whisper", "whole clip")
    ),
)
def test_what_is_asked_of_graphs_is_refused_where_an_export_refuses_it(name, tmp_path):
    """Runs that read prompts, caches in blocks, adapters, bf16, examples: by the class, before a weight is read."""
    SIZED[name](tmp_path)
    if any(name == kind.name for kind in CAPTIONERS):
        with_processor(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    for options in OF_GRAPHS:
        late = is_taken(lambda given=options: check_asked(checkpoint, given))
        assert late == is_taken(lambda given=options: check_class(config, given, embeds=False)), options


@pytest.mark.parametrize("labels", [None, "labels.txt"])
def test_a_whole_clip_takes_adapters_where_its_labels_stay(labels, tmp_path):
    """It is a classifier of pictures then, which reads no texts. Without them it matches, and takes no adapters."""
    made_pair(0, tmp_path)
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    config = json.loads((tmp_path / "config.json").read_text())
    options = ExportOptions(labels=labels and tmp_path / labels)
    checkpoint = convert(tmp_path, options, filled=False).checkpoint
    options = replace(options, adapters=2)

    assert (labels is not None) == is_taken(lambda: check_asked(checkpoint, options))
    assert (labels is not None) == is_taken(lambda: check_class(config, options, embeds=False))

    options = replace(options, adapters=None, max_tokens=8)
    converter = converter_of(config, has_labels=labels is not None, embeds=False)
    assert (labels is None) == is_taken(lambda: check_options(converter, options))
    assert (labels is None) == is_taken(lambda: check_class(config, options, embeds=False))


@pytest.mark.parametrize("scoring", ["regression", "single_label_classification"])
def test_examples_are_refused_for_values(scoring, tmp_path):
    """A regression's numbers are no answer of several, so nothing says how many are right."""
    made(next(each for each in CLASSIFIERS if each.name == "bert"), 0, tmp_path)
    change_config(tmp_path, problem_type=scoring)
    config = json.loads((tmp_path / "config.json").read_text())
    checkpoint = convert(tmp_path, ExportOptions(), filled=False).checkpoint
    given = OF_GRAPHS[-1]

    assert (scoring != "regression") == is_taken(lambda: check_asked(checkpoint, given))
    assert (scoring != "regression") == is_taken(lambda: check_class(config, given, embeds=False))


def check_asked(checkpoint, options):
    """Raise ExportError for what an export says of a model that is made, without its weights."""
    as_asked(checkpoint, options)
    check_device(checkpoint, options.number)
    if options.held_out is not None and checkpoint.unscored:
        examples_of(checkpoint, options.number, options.held_out, options.held_out)


BY_PLACES = {
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gptj",
    "codegen",
    "opt",
    "bert",
    "roberta",
    "modernbert",
    "nomicbert",
    "gte",
    "deberta-v2",
    "marian",
    "whisper",
    "vit-gpt2",
    "trocr",
    "blip",
}
BOUNDED = [*DECODERS, *CLASSIFIERS, *SEQ2SEQ, *CAPTIONERS, "whisper"]


@pytest.mark.parametrize("kind", BOUNDED, ids=lambda each: getattr(each, "name", each))
def test_a_length_is_refused_where_the_converter_refuses_it(kind, tmp_path):
    """One token more than there are places; as many are taken. Of a kind without places, neither refuses."""
    write = made_whisper if kind == "whisper" else partial(made, kind, 0)
    write(tmp_path)
    if kind in CAPTIONERS:
        with_processor(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    late = refusal(lambda: convert(tmp_path, ExportOptions(max_tokens=2000), filled=False))
    if late:
        longest = int(late.split()[-2])
        assert f"--max-tokens 2000: the model takes {longest} tokens" == late
        convert(tmp_path, ExportOptions(max_tokens=longest), filled=False)
        check_length(config, ExportOptions(max_tokens=longest))
    assert late == refusal(lambda: check_length(config, ExportOptions(max_tokens=2000)))
    if kind in SEQ2SEQ:
        late = refusal(lambda: convert(tmp_path, ExportOptions(max_source_tokens=2000), filled=False))
        assert late == refusal(lambda: check_length(config, ExportOptions(max_source_tokens=2000)))


PLACES = ("n_positions", "max_position_embeddings", "max_target_positions")


@pytest.mark.parametrize(
    "kind",
    [each for each in BOUNDED if getattr(each, "name", each) in BY_PLACES],
    ids=lambda each: getattr(each, "name", each),
)
def test_where_a_config_does_not_say_how_many_places_there_are_both_take_the_same_number(kind, tmp_path):
    """A field that a class has by itself may be left out of config.json."""
    write = made_whisper if kind == "whisper" else partial(made, kind, 0)
    write(tmp_path)
    if kind in CAPTIONERS:
        with_processor(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for part in (config, config.get("decoder") or config.get("text_config") or {}):
        for name in PLACES:
            part.pop(name, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ExportOptions(max_tokens=100_000)
    late = refusal(lambda: convert(tmp_path, options, filled=False))

    assert late.startswith("--max-tokens 100000: the model takes ")
    assert late == refusal(lambda: check_length(config, options))


def refusal(check):
    """What is said against options."""
    try:
        check()
    except CheckpointError as error:
        return str(error)
    return ""


def test_the_usual_tokenizer_of_a_kind_is_that_of_transformers():
    """Of each model_type whose directory names no class of tokenizers; transformers takes some files as they are."""
    theirs = {kind: TOKENIZER_MAPPING_NAMES.get(kind) for kind in MODULE_OF}
    known = {kind: name for kind, name in theirs.items() if name == AS_IT_IS or kind_of(name or "")}

    assert known == {kind: class_of({"model_type": kind}, {}, None) for kind in known}
    assert {"olmo2", "qwen3_moe", "bert"} <= known.keys()


def test_a_class_that_transformers_knows_to_be_wrong_is_not_taken():
    """Of some model_types, directories often name a class that their files are not of."""
    wrong = {kind: TOKENIZER_MAPPING_NAMES[kind] for kind in MODULE_OF if kind in WRONGLY_NAMED}

    named = {"tokenizer_class": "LlamaTokenizer"}
    assert wrong == {kind: class_of({"model_type": kind}, named, None) for kind in wrong}
    assert {"llava", "smolvlm"} <= wrong.keys()
