"""modules.json of sentence-transformers, and the file that it reads first: as its loader takes them."""

import ast
import inspect
import json
import re
import textwrap

import pytest
from config_changes import ABSENT, others
from test_sentence_files import MORE, TEXT, edited, fault, saved_embedder, their_vector

from late import Late
from weft_export.converters.convert import convert
from weft_export.converters.sentence_files import MODULE_KEYS, TRANSFORMERS
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions

st = Late("sentence_transformers")
parts = Late("sentence_transformers.base.modules")
base = Late("sentence_transformers.base.model")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """What sentence-transformers saved: five modules."""
    return saved_embedder(tmp_path_factory.mktemp("modules"))


def test_each_key_of_a_module_that_its_loader_asks_for_is_in_the_table():
    """Each line of modules.json is a `module_config` there."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(base.BaseModel._load_config_modules)))
    asked = {
        ast.literal_eval(node.slice)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "module_config"
    }
    assert {"path", "type", "name"} == asked
    assert set() == asked - {*MODULE_KEYS}


def test_two_modules_of_one_name_are_refused(embedder, tmp_path):
    """Its loader puts the second in the place of the first."""
    directory = edited(embedder, tmp_path / "edited", "modules.json", (3, "name"), "2")
    assert 4 == len(st.SentenceTransformer(str(directory), device="cpu"))
    with pytest.raises(CheckpointError, match=r"modules.json: the name '2' is that of two modules"):
        convert(directory, ExportOptions(), filled=False)


@pytest.mark.parametrize("name", ["", None, 7, "a.b"], ids=str)
def test_a_name_that_no_module_may_have_is_refused(name, embedder, tmp_path):
    """As its loader refuses it: torch takes strings that are not empty, without a dot."""
    directory = edited(embedder, tmp_path / "edited", "modules.json", (3, "name"), name)
    with pytest.raises((KeyError, TypeError)):
        st.SentenceTransformer(str(directory), device="cpu")
    with pytest.raises(CheckpointError, match=r"modules.json: the name .* of a module must be a string"):
        convert(directory, ExportOptions(), filled=False)


def test_the_names_of_the_first_modules_file_are_its_loaders():
    """In its order: of several files the first that is there counts."""
    named = re.findall(r"sentence_[a-z-]+_config\.json", inspect.getsource(parts.Transformer.load_config))
    assert list(TRANSFORMERS) == list(dict.fromkeys(named))


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(each, marks=pytest.mark.long) for each in TRANSFORMERS[:-1]),
        TRANSFORMERS[-1],
    ],
)
def test_whichever_name_it_has_the_first_modules_file_is_read(name, embedder, tmp_path):
    """A text is as long as it says."""
    directory = edited(embedder, tmp_path / "edited", TRANSFORMERS[0], ("max_seq_length",), 7)
    (directory / TRANSFORMERS[0]).rename(directory / name)
    assert 7 == st.SentenceTransformer(str(directory), device="cpu").max_seq_length
    assert 7 == convert(directory, ExportOptions(), filled=False).checkpoint.text.max_source_tokens


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_key_of_modules_is_followed_or_told(embedder, tmp_path):
    """Whatever one key of one module says: their vector, or a refusal or a note that names it."""
    faults, tried = {}, 0
    for place, module in enumerate(json.loads((embedder / "modules.json").read_text())):
        for name in sorted({*module, *MODULE_KEYS}):
            for value in (*others(name, module.get(name)), *MORE.get(name, ())):
                tried += 1
                path = (place, name)
                if found := fault(embedder, tmp_path / "work", "modules.json", path, value, their_vector, (TEXT,)):
                    faults[f"{place}: {name}: {'absent' if value is ABSENT else value!r}"] = found
    assert {} == faults
    assert tried > 100
