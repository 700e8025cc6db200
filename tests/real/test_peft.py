"""Adapters that PEFT wrote, in bundles of every precision, against what PEFT itself computes with them."""

from dataclasses import replace

import pytest
import torch
import transformers
from tiny_parts import byte_tokenizer

from late import Late
from weft_export.adapters.export_adapter import export_adapter
from weft_export.adapters.merging import write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.converters.convert import convert
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

# It takes half a second to import.
peft = Late("peft")
TARGETS = ["q_proj", "v_proj", "down_proj"]
CHOICES = ExportOptions(max_tokens=96)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT reads what transformers has renamed
@pytest.mark.parametrize(
    ("precision", "more"),
    [("fp32", {}), ("nf4", {}), ("int8", {"use_rslora": True, "rank_pattern": {"down_proj": 3}})],
)
def test_an_adapter_of_peft_is_what_peft_computes(precision, more, tmp_path):
    """Logits of PEFT are those of merged weights. ONNX Runtime agrees with these, or with a rounded base beside it."""
    model, adapter, merged = (tmp_path / name for name in ("model", "adapter", "merged"))
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=300, num_hidden_layers=2, max_position_embeddings=128, **sizes)
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 2 * parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 1)
    theirs.save_pretrained(model)
    (model / "tokenizer.json").write_bytes(byte_tokenizer())
    (model / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')

    adapted = peft.get_peft_model(theirs, peft.LoraConfig(r=2, lora_alpha=6, target_modules=TARGETS, **more)).eval()
    with torch.no_grad():
        for path, parameter in adapted.named_parameters():
            if "lora_B" in path:
                parameter.normal_(0, 0.3)
    adapted.save_pretrained(adapter)
    merged.mkdir()
    write_merged(model, read_adapter(adapter), merged)
    tokens = torch.randint(2, 300, (1, 48))
    with torch.inference_mode():
        expected = adapted(tokens).logits[0]
        actual = convert(merged, CHOICES).checkpoint.model.decode(tokens)[0]
    assert 1e-4 >= float((actual - expected).abs().max() / expected.abs().max())

    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(model, bundle, replace(CHOICES, precision=precision, adapters=3))
    parity = export_adapter(adapter, bundle, model).manifest.parity
    assert parity.tolerance >= parity.max_abs_error
    if precision == "fp32":
        assert 1e-4 >= parity.max_abs_error
