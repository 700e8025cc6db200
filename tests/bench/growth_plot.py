"""The picture of `make bench-families`: state and step time against length, one line for each family."""

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

NAMES = {
    "rnn": "LSTM, fixed context",
    "attention_rnn": "GRU, additive attention",
    "encoder_decoder": "Transformer, encoder-decoder",
    "t5": "T5 style",
    "gpt": "GPT-2 style",
    "causal_lm": "Llama style (2 of 8 key/value heads)",
    "hybrid": "LFM2 style, 1 of 2 layers attends",
    "state_space": "Granite 4 H style, 1 of 2 layers attends",
    "mamba": "Mamba, 4 layers, none attends",
    "mamba2": "Mamba 2, 4 layers, none attends",
    "rwkv7": "RWKV 7, 2 layers, none attends",
}
# Matplotlib has ten of its own.
COLORS = (*(f"C{index}" for index in range(10)), "black")
# A step of one row is mostly the calling of operators: its curves show noise, so the tables alone have them.
PANELS = (
    ("state_bytes", "state of one sequence, KiB", 1 / 1024),
    ("step_ms_32", "a decode step of 32 rows, ms", 1),
)


def plot_growth(growth, path):
    """Draw two panels over a common logarithmic length axis, with direct labels in one legend below."""
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    for axes, (key, title, scale) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for each, marker, color in zip(growth, "osD^vPX*hd<", COLORS, strict=True):
            values = [value * scale for value in each[key]]
            axes.plot(each["lengths"], values, marker=marker, color=color, markersize=5, label=NAMES[each["family"]])
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,.4g}")
        axes.set_xticks(growth[0]["lengths"], [str(length) for length in growth[0]["lengths"]])
        axes.minorticks_off()
        axes.set_xlabel("tokens behind the sequence (and in its source)")
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
