"""Recipe `few-shot`: a small GPT that reads from a few examples what to do with a word."""

import string
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.console import OnProgress
from weft_export.families.gpt import Gpt, GptConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, pad, prepare
from weft_recipes.texts.rules import RULES, Task, Tasks, answer

SEED = 71
PAD, END, UNKNOWN = range(3)
SPECIAL = ("<pad>", "<end>", "<unknown>")
MAX_SHOTS, CONTEXT, LONGEST = 4, 72, 10
BATCH, NUM_STEPS, PEAK_LR = 64, 1_300, 3e-3
RANDOM_SHARE = 0.5
"""The share of training words that are letters drawn at random, so that no word is learned by heart."""
NUM_MEASURED = 60
"""Tasks measured for each rule and number of shots."""
EXAMPLE = "cat:tac dog:god sun:"
IGNORED = -100


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out words."""
    watch = Stopwatch()
    prepare(SEED)
    torch.set_num_threads(1)  # a second one gains little on so small a model
    tasks, tokenizer = Tasks(SEED, held_out=False, random_share=RANDOM_SHARE), character_tokenizer()
    model = Gpt(
        GptConfig(
            vocab_size=tokenizer.get_vocab_size(), max_tokens=CONTEXT, d_model=64, num_heads=4, d_ff=256, num_layers=3
        )
    )

    def loss_of(_step: int) -> Tensor:
        rows = [lesson(tasks.draw(MAX_SHOTS), tokenizer) for _ in range(BATCH)]
        logits = model(pad([ids for ids, _ in rows], PAD))
        wanted = pad([labels for _, labels in rows], IGNORED)
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    shares = measure_attention(model, tokenizer, Tasks(SEED + 1, held_out=False))
    layer = max(range(len(shares)), key=shares.__getitem__)
    save_checkpoint(out, _checkpoint(model, tokenizer, layer), dtype=torch.float16)
    figures = measure(out)
    figures["prompts trained on"] = NUM_STEPS * BATCH
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures |= watch.figures()
    write_card(out, CARD, figures)
    return figures


def character_tokenizer() -> Tokenizer:
    """Return a tokenizer whose tokens are characters: letters of both cases, space, colon and hyphen."""
    characters = [*SPECIAL, *" :-", *string.ascii_letters]
    # Byte-pair encoding without a single pair.
    tokenizer = Tokenizer(
        models.BPE({character: i for i, character in enumerate(characters)}, [], unk_token=SPECIAL[UNKNOWN])
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def lesson(task: Task, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return a task's tokens with all answers, and for each what follows it: an answer's letters, END, or IGNORED.

    In a prompt a space follows an answer; what a model is taught to write there is END.
    """
    ids, labels = list[int](), list[int]()
    for word in task.words:
        question, letters = (tokenizer.encode(text).ids for text in (f"{word}:", answer(task.rule, word)))
        ids += [*question, *letters, *tokenizer.encode(" ").ids]
        labels += [IGNORED] * (len(question) - 1) + [*letters, END, IGNORED]
    return ids, labels


@torch.no_grad()
def continue_greedily(model: Gpt, prompts: list[list[int]]) -> list[list[int]]:
    """Return the likeliest tokens after each of the prompts, up to END, which is left out, and at most LONGEST."""
    rows = [list(prompt) for prompt in prompts]
    for _ in range(LONGEST):
        logits = model(pad(rows, PAD))
        for row, scores in zip(rows, logits, strict=True):
            row.append(int(scores[len(row) - 1].argmax()))
    answers = [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]
    return [row[: row.index(END)] if END in row else row for row in answers]


def measure(directory: Path) -> Figures:
    """Measure a stored checkpoint on held-out words: how many answers are right after 0, 1, 2 and 4 examples."""
    checkpoint = load_checkpoint(directory)
    model = checkpoint.model
    assert isinstance(model, Gpt)
    tokenizer = Tokenizer.from_buffer(checkpoint.files["tokenizer.json"])
    figures: Figures = {}
    of_rules: Figures = {}
    tasks = Tasks(SEED + 2, held_out=True)
    for num_shots in (0, 1, 2, MAX_SHOTS):
        shares = []
        for rule in RULES:
            drawn = [tasks.draw(num_shots, [rule]) for _ in range(NUM_MEASURED)]
            given = continue_greedily(model, [tokenizer.encode(task.prompt).ids for task in drawn])
            wanted = [answer(rule, task.words[-1]) for task in drawn]
            right = sum(tokenizer.decode(ids) == text for ids, text in zip(given, wanted, strict=True))
            shares.append(right / len(drawn))
            of_rules[f"{rule}, {num_shots} examples"] = shares[-1]
        figures[f"right answers, {num_shots} examples"] = sum(shares) / len(shares)
    figures |= {name: share for name, share in of_rules.items() if name.endswith(f" {MAX_SHOTS} examples")}
    figures["letters that attend to their origin"] = measure_attention(
        model, tokenizer, Tasks(SEED + 3, held_out=True)
    )[checkpoint.explained_layer]
    figures["tasks measured for each rule and number"] = NUM_MEASURED
    return figures


@torch.no_grad()
def measure_attention(model: Gpt, tokenizer: Tokenizer, tasks: Tasks) -> list[float]:
    """Return for each layer the share of right answers' letters that attend most, of the question, to their origin."""
    hits, total = [0] * len(model.attention_heads), 0
    for _ in range(100):
        task = tasks.draw(MAX_SHOTS)
        prompt, letters = tokenizer.encode(task.prompt).ids, RULES[task.rule](task.words[-1])
        target = tokenizer.encode(answer(task.rule, task.words[-1])).ids
        source = (torch.tensor([prompt]), torch.tensor([len(prompt)]))
        produced = torch.tensor([target[:-1]], dtype=torch.int64)
        first = len(prompt) - 1 - len(task.words[-1])
        total += sum(origin is not None for _, origin in letters)
        for layer in range(len(hits)):
            weights, _ = model.explain(torch.tensor([layer]), torch.tensor([-1]), produced, *source)
            nearest = weights[:, first:-1].argmax(dim=1).tolist()
            hits[layer] += sum(index == origin for index, (_, origin) in zip(nearest, letters, strict=True))
    return [hit / total for hit in hits]


def _checkpoint(model: Gpt, tokenizer: Tokenizer, layer: int) -> Checkpoint:
    return Checkpoint(
        family="gpt",
        description="Does to a word what a few examples in the prompt show",
        model=model,
        golden=bundle_pb2.Golden(text=EXAMPLE),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=model.config.vocab_size,
            target_vocab_size=model.config.vocab_size,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=CONTEXT,
            max_new_tokens=CONTEXT,
        ),
        max_new_tokens=LONGEST,
        attention_layer=layer,
        files={"tokenizer.json": tokenizer.to_str().encode()},
    )


CARD = Card(
    name="few-shot",
    title="a word, a few examples, an answer",
    summary=f"""Continues a prompt like `{EXAMPLE}` with what the examples show: `nus`. Nothing else says which rule
is meant. It knows: {", ".join(RULES)}.""",
    data="""Words of three or four letters; all words of a prompt have one length. Half of the training words come from
the documentation strings of the Python that ran the recipe, half are letters drawn at random. One word in four (by a
hash) is held out: the figures are of prompts that hold such words only, in the examples too.""",
    model=f"""GPT: 3 layers, width 64, 4 heads, learned positions, tied embedding; stored as float16. Tokens are
characters; context {CONTEXT} tokens, which is {MAX_SHOTS} examples and a question.""",
    notes="""- Each rule counts the same in the averages. Without an example the rule can only be guessed.
- One example may leave open which rule is meant: "cat" becomes "c-t" whether the vowels or the second letter are
  hidden, and "cAt" is as open. More examples settle it.
- The rules differ in what their answers look like (length, capitals, signs). A set with several that differ only in the
  order of the letters (reverse, sort, rotate, copy) was tried first and given up: in this time the model did not learn
  to tell those apart. Neither did it learn words of several lengths in one prompt. Both were seen on words drawn at
  random.
- It errs: after "bird:drib frog:gorf sand:dnas moon:" it writes "noon".
- It has seen no words of other lengths than three and four, nor a prompt with both.
- The set of rules was chosen in two rounds: the first ten (97.7 and 98.8 % after 2 and 4 examples on the held-out
  words) left nothing ambiguous after one example, so others took their place, in knowledge of those figures.
- The layer that explains is the one whose letters attend most often to the letter they are made of, chosen on training
  words.""",
)
