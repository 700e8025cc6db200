"""transformers: generate() on static batches, and classifiers on batches sorted by length."""

import torch
import transformers
from adapter import HUGE_PAGES, HUGGING_FACE, System, serve
from batches import answered, sorted_batches
from images import pixel_values

_MODELS = {
    "llama": transformers.AutoModelForCausalLM,
    "bert": transformers.AutoModelForSequenceClassification,
    "vit": transformers.AutoModelForImageClassification,
}


class Transformers(System):
    """One model in one process; torch's threads share each product.

    Below fp32 there are bfloat16 and torch's own int8 products, whose activations are rounded as they come.
    """

    def version(self):
        """Name and version of what is measured."""
        return f"transformers {transformers.__version__}, torch {torch.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """A generator's batches as large as may be, a classifier's smaller; on all threads, or a batch for each."""
        types = ("float32",) if precision == "fp32" else ("bfloat16", "int8")
        if workload.writes:
            found = [{"workers": 1, "threads": num_cpus, "batch": in_flight}]
        else:
            sizes = (1, 4) if workload.shape == "vit" else (8, 16)
            shares = [(num_cpus, 1), (1, num_cpus)]
            found = [
                {"workers": workers, "threads": threads, "batch": size}
                for workers, threads in shares
                for size in sizes
                if workers * size <= in_flight
            ]
        plain = [{"type": each, **setting} for each in types for setting in found]
        if workload.writes:
            return plain
        # The compiler needs a C++ compiler and a minute. Frozen weights are constants to it, which it lays out anew.
        frozen = {"compiled": True, "environment": {"TORCHINDUCTOR_FREEZING": "1"}}
        compiled = [setting | frozen for setting in plain if setting["type"] != "int8"]
        return [*plain, *compiled, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Nothing: the harness has written the Hugging Face folder."""

    def load(self, folder, workload, precision, setting):
        """Load the weights, and round them if need be."""
        torch.set_num_threads(setting["threads"])
        transformers.logging.set_verbosity_error()
        self.dtype = torch.bfloat16 if setting["type"] == "bfloat16" else torch.float32
        model = _MODELS[workload.shape].from_pretrained(folder / HUGGING_FACE, dtype=self.dtype).eval()
        if setting["type"] == "int8":
            model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
        if setting.get("compiled"):
            model = torch.compile(model, dynamic=workload.shape == "bert")
        self.model, self.folder, self.setting = model, folder, setting
        self.answer = self._generate if workload.writes else self._classify

    def convert(self, requests):
        """Batches of (index, request), and what the model is called with for each."""
        batches = sorted_batches(requests, self.setting["batch"])
        return [(rows, self._inputs([request for _, request in rows])) for rows in batches]

    def run(self, batches, in_flight):
        """Answer batch by batch."""
        assert self.setting["batch"] * self.setting["workers"] <= in_flight
        return answered(batches, self.setting["workers"], self.answer)

    def _inputs(self, requests):
        if "image" in requests[0]:
            pixels = pixel_values(self.folder, [request["image"] for request in requests])
            return {"pixel_values": torch.from_numpy(pixels).to(self.dtype)}
        longest = max(len(request["ids"]) for request in requests)
        padding = [[0] * (longest - len(request["ids"])) for request in requests]
        rows = [request["ids"] + more for request, more in zip(requests, padding, strict=True)]
        masks = [[1] * len(request["ids"]) + more for request, more in zip(requests, padding, strict=True)]
        inputs = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}
        if not any(padding):
            # Nothing to mask: attention then takes a faster path.
            del inputs["attention_mask"]
        if "num_new" in requests[0]:
            (inputs["max_new_tokens"],) = {request["num_new"] for request in requests}
        return inputs

    def _generate(self, inputs):
        ids, num_new = inputs["input_ids"], inputs["max_new_tokens"]
        # Without an end token there is nothing to look for, and every row runs to the end.
        written = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            do_sample=False,
            eos_token_id=None,
        )
        return written[:, ids.shape[1] :].tolist()

    # Said here, not once in load: it holds for a thread.
    @torch.inference_mode()
    def _classify(self, inputs):
        return self.model(**inputs).logits.float().softmax(-1).tolist()


if __name__ == "__main__":
    serve(Transformers())
