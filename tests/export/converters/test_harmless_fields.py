"""What is passed over in a config.json is read by no class of transformers, or for nothing that changes an answer."""

import inspect
import re
from importlib import import_module

import transformers

from weft_export.converters.fields import HARMLESS
from weft_export.converters.registry import all_converters

READS = re.compile(r"""config\.(\w+)|getattr\([\w.]*config, ["'](\w+)""")
# What the library's models ask for all the same, and what for.
ASKED_FOR = {
    "add_cross_attention": "layers whose weights are refused as unused",
    "chunk_size_feed_forward": "the same sums in pieces",
    "cross_attention_hidden_size": "the size of products, which their weights say",
    "decoder_start_token_id": "training; a decoder's start is read by generation.py",
    "dtype": "the precision of a mask",
    "eos_token_id": "where a text ends, which heads and poolers read",
    "gradient_checkpointing": "training",
    "id2label": "whisper's languages, which generation_config.json has",
    "initializer_factor": "training",
    "initializer_range": "training",
    "is_decoder": "a mask, which encoders.py refuses",
    "is_encoder_decoder": "which caches there are",
    "num_labels": "the size of a head, which the weights say",
    "output_attentions": "what is returned beside",
    "output_hidden_states": "what is returned beside",
    "pad_token_id": "a row of zeros in training; where a text ends, which heads read",
    "pretraining_tp": "the same sums in pieces",
    "problem_type": "the loss; what a score is, which heads.py reads",
    "return_dict": "the type of what is returned",
    "use_cache": "how it is computed",
}


def test_no_model_asks_for_what_is_passed_over_but_for_what_is_known():
    """A field that a new version of the library follows, or that is passed over by mistake, fails this."""
    classes = {getattr(transformers, name, None) for each in all_converters() for name in each.architectures} - {None}
    sources = [inspect.getsource(import_module(module)) for module in {each.__module__ for each in classes}]
    asked = {name for source in sources for found in READS.findall(source) for name in found}

    assert len(sources) > 40
    assert sorted(ASKED_FOR) == sorted(asked & HARMLESS)
