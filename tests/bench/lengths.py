"""Quality against sentence length, with a fixed context and with attention, as a page and a picture."""

import datetime as dt
import platform
from pathlib import Path

import matplotlib as mpl
import torch

mpl.use("Agg")
from matplotlib import pyplot as plt

from weft_recipes.grammar.recurrent_translation import BATCH
from weft_recipes.lengths import ATTENTION, BINS, D_HIDDEN, IN_BIN, NUM_TRAINED, SEED, Curve, run

OUT = Path(__file__).parents[2] / "build" / "bench" / "lengths"


def main() -> None:
    """Train, measure, write the page and the picture."""
    began = dt.datetime.now(dt.UTC)
    OUT.mkdir(parents=True, exist_ok=True)
    for curves in run(lambda note: print(note, flush=True)):
        draw(curves, OUT / "lengths.png")
        (OUT / "lengths.md").write_text(describe(curves, began.date()), encoding="utf-8")


def describe(curves: list[Curve], date: dt.date) -> str:
    """Return the page: what was asked, how it was measured, and every figure."""
    head = "| words | " + " | ".join(f"{curve.name}, ≤ {curve.trained_up_to}" for curve in curves) + " |"
    rule = "|---" * (len(curves) + 1) + "|"
    tables = []
    for title, figures in (("BLEU", "bleu"), ("Exact match", "exact")):
        rows = [
            f"| {last - 4}..{last} | "
            + " | ".join(f"{100 * getattr(curve, figures)[index]:.1f}" for curve in curves)
            + " |"
            for index, last in enumerate(BINS)
        ]
        tables.append("\n".join((f"{title}, per cent, by words of the source:", "", head, rule, *rows)))
    trained = "\n".join(
        f"| {curve.name} | {curve.trained_up_to} | {curve.parameters:,} | {curve.num_steps:,} | {curve.cpu_seconds} |"
        for curve in curves
    )
    return f"""# Quality against sentence length, {date}

Question: does a fixed context fall behind on long sentences where attention does not, as in Figure 2 of Bahdanau et al.
2015, on the demo grammar?

![BLEU by sentence length](../images/lengths.png)

- Command: `make bench-lengths`.
- Machine: virtual, 2 cores of an AMD EPYC (AVX-512), no GPU; one thread each; other work shared the machine, which the
  figures below do not depend on.
- Versions: Python {platform.python_version()}, torch {torch.__version__}. Seed {SEED}.
- Models, trained on the same {NUM_TRAINED:,} sentences in batches of {BATCH}: a GRU encoder-decoder with a fixed
  context (family `rnn`, source read backwards, which helps it) and one with attention (family `attention_rnn`, not
  guided), both with hidden width {D_HIDDEN}. Attention has more parameters, as in the paper; the fixed context took
  more steps in about the same time.
- Sentences: statements of the grammar joined by *but*, *because* and *while*, lengths drawn evenly up to the longest.
- Measured on {IN_BIN} sentences for each bin, made of clauses whose combinations of subject, verb and object occur in
  no training sentence, up to {BINS[-1]} words: far longer than those trained on. Greedy. BLEU is that of the bin.
- One run of each; nothing says how far another seed would be from it.

{tables[0]}

{tables[1]}

| model | trained up to words | parameters | steps | CPU seconds |
|---|---|---|---|---|
{trained}
"""


def draw(curves: list[Curve], path: Path) -> None:
    """Plot BLEU against the source's length; a dotted line says how long the sentences trained on were at most."""
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    longest = sorted({curve.trained_up_to for curve in curves})
    for curve in curves:
        axes.plot(
            [last - 2 for last in BINS],
            [100 * value for value in curve.bleu],
            marker="o",
            markersize=4,
            color="tab:blue" if curve.name == ATTENTION else "tab:red",
            linestyle="--" if curve.trained_up_to == longest[0] and len(longest) > 1 else "-",
            label=f"{curve.name}, trained up to {curve.trained_up_to} words",
        )
    for words in longest:
        axes.axvline(words, color="0.75", linestyle=":", zorder=0)
    axes.set(
        title="Quality by sentence length; dotted: the longest sentence trained on",
        xlabel="words of the source sentence, in bins of five",
        ylabel="BLEU",
        xlim=(0, BINS[-1] + 1),
        ylim=(0, 103),
    )
    axes.set_xticks(BINS)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
