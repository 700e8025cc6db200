"""g2p-en (Apache-2.0) as a checkpoint of the family rnn: letters in, sounds out; and the arithmetic of its authors.

The package carries a GRU encoder-decoder as numpy arrays. Its own code reads them with numpy alone. `predict` does the
same arithmetic, and is what served answers are held to.
"""

import json

import numpy as np
import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.rnn import Rnn, RnnConfig
from weft_proto.v1 import bundle_pb2

LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
SOUNDS = ["<pad>", "<unk>", "<s>", "</s>"]
SOUNDS += [
    "AA0",
    "AA1",
    "AA2",
    "AE0",
    "AE1",
    "AE2",
    "AH0",
    "AH1",
    "AH2",
    "AO0",
    "AO1",
    "AO2",
    "AW0",
    "AW1",
    "AW2",
    "AY0",
    "AY1",
    "AY2",
    "B",
    "CH",
    "D",
    "DH",
    "EH0",
    "EH1",
    "EH2",
]
SOUNDS += [
    "ER0",
    "ER1",
    "ER2",
    "EY0",
    "EY1",
    "EY2",
    "F",
    "G",
    "HH",
    "IH0",
    "IH1",
    "IH2",
    "IY0",
    "IY1",
    "IY2",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "OW0",
    "OW1",
    "OW2",
    "OY0",
    "OY1",
    "OY2",
]
SOUNDS += ["P", "R", "S", "SH", "T", "TH", "UH0", "UH1", "UH2", "UW", "UW0", "UW1", "UW2", "V", "W", "Y", "Z", "ZH"]
START, END = 2, 3
LONGEST_WORD, MOST_SOUNDS = 40, 20


def read_arrays(packages):
    """Return the weights by name."""
    with np.load(packages / "g2p_en" / "checkpoint20.npz") as file:
        return {name: file[name] for name in file.files}


def words(packages):
    """Return the words that the package lists."""
    lines = (packages / "g2p_en" / "homographs.en").read_text().splitlines()
    return [line.partition("|")[0].lower() for line in lines if line and not line.startswith("#")]


def checkpoint_of(arrays):
    """Return the checkpoint: theirs are torch's GRU weights, and the source is read forwards."""
    sizes = {"cell": "gru", "d_embedding": 256, "d_hidden": 256, "num_layers": 1, "reverse_source": False}
    model = Rnn(
        RnnConfig(
            source_vocab_size=len(LETTERS),
            target_vocab_size=len(SOUNDS),
            max_source_tokens=LONGEST_WORD,
            max_target_tokens=MOST_SOUNDS + 1,
            **sizes,
        )
    )
    names = {"source_embedding.weight": "enc_emb", "embedding.weight": "dec_emb"}
    names |= {"output.weight": "fc_w", "output.bias": "fc_b"}
    for ours, theirs in (("encoder", "enc"), ("decoder", "dec")):
        for kind, short in (("weight", "w"), ("bias", "b")):
            for part in ("ih", "hh"):
                names[f"{ours}.0.layer.{kind}_{part}_l0"] = f"{theirs}_{short}_{part}"
    model.load_state_dict({ours: torch.tensor(arrays[theirs]) for ours, theirs in names.items()})
    return Checkpoint(
        family="rnn",
        description="g2p-en 2.1.0: the sounds of an English word.",
        model=model.eval(),
        golden=bundle_pb2.Golden(text="record"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="letters.json",
            target_tokenizer="sounds.json",
            source_vocab_size=len(LETTERS),
            target_vocab_size=len(SOUNDS),
            start_id=START,
            end_ids=[END],
            max_source_tokens=LONGEST_WORD,
            max_total_tokens=MOST_SOUNDS + 1,
            max_new_tokens=MOST_SOUNDS + 1,
        ),
        max_new_tokens=MOST_SOUNDS + 1,
        files={"letters.json": _letters(), "sounds.json": _sounds()},
    )


def predict(arrays, word):
    """Return the sounds of a word, in numpy."""
    hidden = np.zeros((1, 256), np.float32)
    for letter in [*word, "</s>"]:
        index = LETTERS.index(letter) if letter in LETTERS else 1
        hidden = _step(arrays, "enc", arrays["enc_emb"][[index]], hidden)
    sounds = []
    last = START
    while len(sounds) < MOST_SOUNDS:
        hidden = _step(arrays, "dec", arrays["dec_emb"][[last]], hidden)
        last = int((hidden @ arrays["fc_w"].T + arrays["fc_b"]).argmax())
        if last == END:
            break
        sounds.append(SOUNDS[last])
    return sounds


def _step(arrays, side, x, hidden):
    from_x = x @ arrays[f"{side}_w_ih"].T + arrays[f"{side}_b_ih"]
    from_h = hidden @ arrays[f"{side}_w_hh"].T + arrays[f"{side}_b_hh"]
    reset, keep = np.split(1 / (1 + np.exp(-(from_x + from_h)[:, :512])), 2, axis=1)
    new = np.tanh(from_x[:, 512:] + reset * from_h[:, 512:])
    return (1 - keep) * new + keep * hidden


def _tokenizer(vocabulary, **parts):
    model = {"type": "WordLevel", "vocab": {token: index for index, token in enumerate(vocabulary)}}
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "model": {**model, "unk_token": "<unk>"}, **parts}
    ).encode()


def _letters():
    ending = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, _special()], "pair": []}
    special = {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    return _tokenizer(LETTERS, pre_tokenizer=split, post_processor={**ending, "special_tokens": special})


def _special():
    return {"SpecialToken": {"id": "</s>", "type_id": 0}}


def _sounds():
    # A special token is no part of a text.
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    end = {"id": END, "content": "</s>", "special": True, **flags}
    return _tokenizer(SOUNDS, added_tokens=[end], pre_tokenizer={"type": "WhitespaceSplit"})
