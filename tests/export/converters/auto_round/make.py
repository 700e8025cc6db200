"""Makes the directories beside this file. They are of AutoRound 0.16.1, 2026-11-26: `python make.py`.

Each is what the library writes, and `rounded.safetensors`: the weights of its own model, which it keeps as bfloat16.
AutoRound brings 100 MB of packages, so no test runs this.
"""

from pathlib import Path

import torch
from auto_round import AutoRound
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
VOCAB = 48


def make(form, *, symmetric):
    """Write one directory."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": VOCAB}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64}
    # AutoRound stores tables as bfloat16.
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).bfloat16().float()
    words = models.WordLevel({f"t{each}": each for each in range(VOCAB)}, unk_token="t0")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    library = AutoRound(model, tokenizer, bits=4, group_size=32, sym=symmetric, iters=0, disable_opt_rtn=True)
    library.amp = False
    rounded, _ = library.quantize()
    weights = {
        f"{name}.weight": layer.weight.detach().bfloat16().contiguous()
        for name, layer in rounded.named_modules()
        if isinstance(layer, torch.nn.Linear) and name != "lm_head"
    }
    folder = HERE / form
    library.save_quantized(folder, format=form)
    save_file(weights, folder / "rounded.safetensors")


if __name__ == "__main__":
    make("auto_round", symmetric=True)
    make("auto_gptq", symmetric=True)
    make("auto_awq", symmetric=False)
