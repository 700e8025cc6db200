"""CTranslate2: Translator and Generator, batches handed out by threads of ours."""

import json
from pathlib import Path

import ctranslate2
from adapter import HUGE_PAGES, System, serve
from batches import answered, sorted_batches
from ctranslate2_weights import llama_spec, translation_spec, vocabulary

_SPECS = {"translation": translation_spec, "llama": llama_spec}
_COMPUTE = {"fp32": "float32", "int8": "int8"}


class CTranslate2(System):
    """Each worker takes the next batch of a list sorted by length, longest first, as the library itself does.

    Threads of ours, not one call with everything: only so is known when a batch begins, and which row is which in a
    callback. README.md has what the library's own queue gives.
    """

    def version(self):
        return f"CTranslate2 {ctranslate2.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        shares = [(num_cpus, 1), (1, num_cpus)] if in_flight > 1 else [(1, num_cpus), (1, 1)]
        plain = [{"workers": workers, "threads": threads, "batch": in_flight // workers} for workers, threads in shares]
        first = plain[0]
        if in_flight >= 4 * num_cpus:
            plain.append(first | {"batch": first["batch"] // 2})
        # Unless told it takes MKL on Intel's processors and oneDNN on others. MKL can have weights packed for it.
        intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
        environments = (
            HUGE_PAGES,
            {"CT2_USE_MKL": "0" if intel else "1"},
            {"CT2_USE_MKL": "1", "CT2_USE_EXPERIMENTAL_PACKED_GEMM": "1"},
        )
        others = [first | {"environment": each} for each in environments]
        if workload.new[0] < workload.new[1]:
            ended = [setting | {"ends": ends} for setting in plain for ends in ("callback", "longest")]
            return ended + [setting | {"ends": "callback"} for setting in others]
        found = [*plain, *others]
        if workload.inputs[0] < workload.inputs[1]:
            found.append(first | {"tokens": first["batch"] * sum(workload.inputs) // 2})
        return found

    def prepare(self, folder, precision):
        done = folder / f"ctranslate2-{precision}"
        if done.is_dir():
            return
        fresh = folder / f"ctranslate2-{precision}.fresh"
        fresh.mkdir(exist_ok=True)
        spec = _SPECS[folder.name](folder)
        spec.validate()
        spec.optimize("int8" if precision == "int8" else None)
        spec.save(str(fresh))
        fresh.rename(done)

    def load(self, folder, workload, precision, setting):
        kind = ctranslate2.Translator if folder.name == "translation" else ctranslate2.Generator
        self.setting, self.num_beams = setting, workload.num_beams
        config = json.loads((folder / "checkpoint" / "config.json").read_text())
        self.words = vocabulary(config["text"]["source_vocab_size"])
        self.ids = {word: index for index, word in enumerate(self.words)}
        self.model = kind(
            str(folder / f"ctranslate2-{precision}"),
            compute_type=_COMPUTE[precision],
            inter_threads=setting["workers"],
            intra_threads=setting["threads"],
        )
        self.model_answers = self._translate if folder.name == "translation" else self._generate

    def convert(self, requests):
        """Batches, longest first, each with (sources or prompts as words, how many new tokens each)."""
        size, tokens = self.setting["batch"], self.setting.get("tokens")
        (rows,) = sorted_batches(requests, len(requests))
        batches = []
        while rows:
            # A batch is padded to its first row.
            num = min(size, max(1, tokens // len(rows[0][1]["ids"]))) if tokens else size
            batches.append((rows[:num], self._given([request for _, request in rows[:num]])))
            rows = rows[num:]
        return batches

    def _given(self, requests):
        words = [[self.words[each] for each in request["ids"]] for request in requests]
        return words, [request["num_new"] for request in requests]

    def run(self, batches, in_flight):
        assert self.setting["batch"] * self.setting["workers"] <= in_flight
        return answered(batches, self.setting["workers"], lambda given: self.model_answers(*given))

    def _translate(self, sources, num_new):
        longest = max(num_new)
        results = self.model.translate_batch(
            sources,
            beam_size=self.num_beams,
            length_penalty=1,
            max_decoding_length=longest,
            min_decoding_length=longest,
            **self._ends(num_new),
        )
        hypotheses = [each.hypotheses[0][:num] for each, num in zip(results, num_new, strict=True)]
        return [[self.ids[word] for word in words] for words in hypotheses]

    def _generate(self, prompts, num_new):
        longest = max(num_new)
        results = self.model.generate_batch(
            prompts,
            max_length=longest,
            min_length=longest,
            include_prompt_in_result=False,
            **self._ends(num_new),
        )
        return [each.sequences_ids[0][:num] for each, num in zip(results, num_new, strict=True)]

    def _ends(self, num_new):
        """How rows of a batch end at lengths of their own: a callback says so, or all run to the longest."""
        if self.setting.get("ends") != "callback":
            return {}
        return {"callback": lambda step: step.step + 1 >= num_new[step.batch_id]}


if __name__ == "__main__":
    serve(CTranslate2())
