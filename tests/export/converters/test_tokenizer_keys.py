"""The table of tokenizer_config.json has each key that transformers reads of a tokenizer: a new one fails this test."""

import inspect
import re

import pytest
import transformers
from transformers import tokenization_utils_base, tokenization_utils_tokenizers

from weft_export.converters.keys import Use, check_keys
from weft_export.converters.text.kinds import _KINDS as CLASSES
from weft_export.converters.text.settings import CONFIG, NAMES, OPTION_KEYS
from weft_export.errors import CheckpointError

READS = re.compile(r"""(?:kwargs|config)(?:\.(?:get|pop|setdefault)\(\s*|\[)["'](\w+)["']""")
# What a caller gives, and no file: how to load, how to save, how to call, how to train.
OF_CALLS = """
_commit_hash _from_auto _from_pipeline args cache_dir commit_message device_map force_download gguf_file kwargs
proxies repo_id revision save_jinja_files self subfolder token use_source_tokenizer
max_target_length sanitize_control_tokens
continuing_subword_prefix end_of_word_suffix initial_alphabet
"""
# Parts that transformers reads out of other files, and hands on by these names.
OF_OTHER_FILES = """
_json_padding _json_truncation _spm_precompiled_charsmap fast_tokenizer_files merges model_type normalizer_file
normalizers post_processor slow_tokenizer_class tokenizer tokenizer_object tokenizer_padding tokenizer_truncation
type vocab
"""
# Told as unknown where a file has it: it is for older files of a kind that is not read otherwise.
UNKNOWN = "fix_mistral_regex"

# Of each option that can be followed at one value only, another value. The first are refused, the last are noted.
OTHERWISE = {
    "split_special_tokens": True,
    "init_inputs": ["<s>"],
    "sp_model_kwargs": {"enable_sampling": True},
    "errors": "strict",
    "normalize": True,
}


def test_what_is_not_followed_is_refused_or_noted():
    """By its name, and with its value."""
    assert [name for name, row in OPTION_KEYS.items() if not isinstance(row, Use)] == list(OTHERWISE)
    for name, value in list(OTHERWISE.items())[:3]:
        with pytest.raises(CheckpointError, match=re.escape(f"{CONFIG}: {name} is {value!r}")):
            check_keys(CONFIG, {name: value}, OPTION_KEYS)
    for name, value in list(OTHERWISE.items())[3:]:
        (note,) = check_keys(CONFIG, {name: value}, OPTION_KEYS)
        assert note.startswith(f"{name} is {value!r}: ")


def test_each_option_that_a_tokenizer_reads_is_in_the_table():
    """By the arguments of each class, and by what the source of transformers asks its files for."""
    bases = {
        base
        for name in CLASSES
        for base in getattr(transformers, name).__mro__
        if base.__module__.startswith("transformers")
    }
    modules = (tokenization_utils_base, tokenization_utils_tokenizers)
    asked = {name for base in bases for name in inspect.signature(base.__init__).parameters}
    asked |= {name for part in (*bases, *modules) for name in READS.findall(inspect.getsource(part))}

    assert {*OF_CALLS.split(), *OF_OTHER_FILES.split(), UNKNOWN} == asked - {*OPTION_KEYS, *NAMES}
