"""Other systems with the same weights on the same device, where they are installed."""

import importlib.util
import time

import numpy as np
import torch
from hugging_face import write_hugging_face

_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def missing(name, precision):
    """Why a system cannot take part, or nothing."""
    if precision not in _TYPES:
        return f"it has no weights like those of {precision}"
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    return "" if torch.cuda.is_available() else "torch has no CUDA"


def transformers_rates(folder, prompt, scale, precision):
    """`generate` at each number of rows, with a growing cache and with a static, compiled one; the better counts."""
    import transformers

    transformers.logging.set_verbosity_error()
    write_hugging_face(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hugging-face", dtype=_TYPES[precision])
    model = model.to("cuda").eval()
    for num_rows in scale.in_flight:
        ids = torch.tensor(np.tile(prompt, (num_rows, 1)), device="cuda")
        rates = {cache: _generate_rate(model, ids, scale, cache) for cache in ("dynamic", "static")}
        best = max(rates, key=rates.get)
        yield {
            "system": f"transformers {transformers.__version__}, {best} cache",
            "in_flight": num_rows,
            "tokens_per_s": round(rates[best], 1),
        }


def vllm_rates(folder, prompt, scale, precision):
    """Give vLLM as many prompts as are to be in flight. It batches them itself."""
    import vllm

    write_hugging_face(folder)
    model = vllm.LLM(str(folder / "hugging-face"), dtype=str(_TYPES[precision]).removeprefix("torch."))
    options = vllm.SamplingParams(temperature=0, ignore_eos=True, max_tokens=scale.num_new)
    for num_rows in scale.in_flight:
        prompts = [{"prompt_token_ids": prompt.tolist()} for _ in range(num_rows)]

        def run(prompts=prompts):
            return sum(len(each.outputs[0].token_ids) for each in model.generate(prompts, options, use_tqdm=False))

        yield {
            "system": f"vLLM {vllm.__version__}",
            "in_flight": num_rows,
            "tokens_per_s": round(_rate(run, scale.seconds), 1),
        }


def _generate_rate(model, ids, scale, cache):
    options = {"do_sample": False, "eos_token_id": None, "max_new_tokens": scale.num_new, "cache_implementation": cache}

    def run():
        count = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].numel()
        torch.cuda.synchronize()
        return count

    with torch.inference_mode():
        return _rate(run, scale.seconds)


def _rate(run, seconds):
    """Tokens per second of runs that return their tokens, after two that compile and allocate."""
    for _ in range(2):
        run()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        count += run()
    return count / (time.perf_counter() - started)
