"""The golden request of a bundle and its answer by torch: what a server must reproduce before it is ready."""

from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.framing import asked_source, frame_of, positions_of
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.errors import CheckpointError, ExportError
from weft_export.families.classifier import IDENTITY, Classifier
from weft_export.families.writer import Writer
from weft_export.graphs.answering import Row, Run, torch_run, values, write
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.views import scores_of
from weft_export.verification.golden_error import golden_error, kept_numbers
from weft_export.verification.golden_sight import pictured, row_behind, row_seen
from weft_export.verification.tolerance import Tolerance, allowed
from weft_export.verification.tolerances import bounds_of, num_passes, tolerance_of
from weft_proto.bundle_rules import MAX_MASKS, MAX_PROBABILITIES, ROUNDED
from weft_proto.languages import Frame
from weft_proto.questions import encoder_asks
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

# A golden token must win by this much in its logit, so that another processor's rounding picks it too. The margin is
# the number, or the share of the logits' standard deviation if that is less: rounding goes with a model's scale.
MARGIN = {
    bundle_pb2.PRECISION_FP32: (1e-2, 3e-3),
    bundle_pb2.PRECISION_FP16: (2e-1, 5e-2),
    bundle_pb2.PRECISION_BF16: (2e-1, 5e-2),
    **dict.fromkeys(ROUNDED, (2e-1, 5e-2)),
}
# A server compares the answer whole, before it is ready.
_MAX_TOKENS = 256
# Of each mask so many tokens are compared. Their log-probabilities hang on the logits of all others.
_FILLINGS = 16


@dataclass(frozen=True)
class _Step:
    """One token of a greedy answer.

    best holds the best token and the second best. distance is how far their logits are apart. spread is the standard
    deviation of all logits. scale is the difference of a logit that is an error of 1.
    """

    best: tuple[int, ...]
    distance: float
    spread: float
    scale: float


class GoldenRequest:
    """A checkpoint's golden request. It may be answered again, and torch computes each token of the answer once.

    files are those of the bundle. The last answer may be to another picture or recording than the checkpoint's.
    """

    def __init__(
        self, checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, *, may_make: bool = True
    ) -> None:
        """Without may_make, no other picture or recording than the checkpoint's is asked."""
        # Torch keeps slots.
        self.checkpoint, self.precision = replace(checkpoint, paged=False), precision
        self.files = checkpoint.files
        self._may_make = may_make
        self._tolerance = tolerance_of(bounds_of(precision, checkpoint.model), checkpoint.model)
        self._longest = num_passes(checkpoint.model, _MAX_TOKENS)
        self._values: list[float] = []
        self._fillings: tuple[list[int], list[float]] | tuple[()] = ()
        # By the text or the file that was asked: the golden one, or another.
        self._steps: dict[str, list[_Step]] = {}

    def answer(self, parity_error: float = 0.0) -> bundle_pb2.Golden:
        """Return request and answer, whose produced tokens are cut before the first close call.

        A call is close if the two best logits are within MARGIN, or within twice parity_error, which is an error of
        tolerance_of the precision.

        If the first token of a golden text is a close call, parts of the text are asked instead, and then texts of
        random tokens. The first one with a clear first token is taken.

        If that of a golden picture or recording is one, some that the exporter makes are asked instead. The one with
        the most clear tokens is taken.

        Raises:
            CheckpointError: the golden request is none that a server takes, or has an answer that is not finite.
            ExportError: no request has a clear first token.
        """
        if TASKS[self.checkpoint.task].matches:
            golden = _copy(self.checkpoint.golden)
            golden.probabilities.extend(self._values or self._match(golden))
            return golden
        if TASKS[self.checkpoint.task].fills_masks:
            golden = _copy(self.checkpoint.golden)
            ids, scores = self._fill_masks(golden)
            golden.token_ids.extend(ids)
            golden.scores.extend(scores)
            return golden
        if not TASKS[self.checkpoint.task].writes_text:
            golden = _copy(self.checkpoint.golden)
            embeds = TASKS[self.checkpoint.task].embeds
            found = self._values or (self._embed(golden) if embeds else self._classify(golden))
            is_score = (
                TASKS[self.checkpoint.task].labels_frames or getattr(self.checkpoint.model, "scoring", "") == IDENTITY
            )
            answer = golden.embedding if embeds else golden.scores if is_score else golden.probabilities
            answer.extend(found)
            return golden
        self.files = self.checkpoint.files
        tokens, complaint = self._greedy(self.checkpoint, self.checkpoint.golden, parity_error)
        return _answered(self.checkpoint.golden, tokens) if tokens else self._another(parity_error, complaint)

    def _another(self, parity_error: float, complaint: str) -> bundle_pb2.Golden:
        """Return another request that has a clear first token, and its answer. The golden one had the complaint."""
        from weft_export.verification.golden_inputs import made_for, parts_of  # noqa: PLC0415 - late: few need others

        parts, others = parts_of(self.checkpoint), made_for(self.checkpoint)
        for golden in (*parts, *others):
            with suppress(CheckpointError):
                tokens, _ = self._greedy(self.checkpoint, golden, parity_error)
                if tokens:
                    return _answered(golden, tokens)
        made = self._of_made_files(parity_error) if self._may_make else []
        if made:
            clearest, golden, tokens = max(made, key=lambda each: len(each[2]))
            if tokens:
                self.files = clearest.files
                return _answered(golden, tokens)
        tried = f" (nor have {len(parts)} parts of it, nor {len(others)} texts of random tokens)" if others else ""
        row = TASKS[self.checkpoint.task]
        other = "text" if row.takes_text else "picture" if row.takes_image else "recording"
        tried = f" (nor have {len(made)} others)" if made else tried
        other = "question" if row.takes_question else other
        raise ExportError(
            f"the golden request has no clear first token{tried}: {complaint}. A server could not tell a wrong bundle"
            f" from another rounding; give another {other} with --golden"
        )

    def _of_made_files(self, parity_error: float) -> list[tuple[Checkpoint, bundle_pb2.Golden, list[int]]]:
        """Return what is answered to each picture or recording that the exporter makes."""
        from weft_export.verification.golden_inputs import made_files  # noqa: PLC0415 - late: few need others

        asked = self.checkpoint.golden
        replaced = asked.image_path or asked.audio_path
        own = {name: data for name, data in self.checkpoint.files.items() if name != replaced}
        answers = []
        for name, content in made_files(self.checkpoint):
            golden = _copy(asked)
            setattr(golden, "image_path" if asked.image_path else "audio_path", name)
            checkpoint = replace(self.checkpoint, golden=golden, files={**own, name: content})
            answers.append((checkpoint, golden, self._greedy(checkpoint, golden, parity_error)[0]))
        return answers

    @torch.inference_mode()
    def _classify(self, golden: bundle_pb2.Golden) -> list[float]:
        model = self.checkpoint.model
        assert isinstance(model, Classifier)
        logits, hears = model(*_source(self.checkpoint, golden))[0], TASKS[self.checkpoint.task].labels_frames
        probabilities = logits.log_softmax(-1).amax(-1) if hears else scores_of(logits, model.scoring).flatten()
        _check_finite(probabilities)
        if len(probabilities) > MAX_PROBABILITIES:
            raise CheckpointError(
                f"the golden answer has {len(probabilities)} probabilities; at most {MAX_PROBABILITIES} are allowed:"
                " take a shorter golden text"
            )
        self._values = probabilities.tolist()
        return self._values

    @torch.inference_mode()
    def _fill_masks(self, golden: bundle_pb2.Golden) -> tuple[list[int], list[float]]:
        """Return the best tokens for each mask, and their log-probabilities over the whole vocabulary."""
        if not self._fillings:
            model = self.checkpoint.model
            log_probs = model(*_source(self.checkpoint, golden))[0].log_softmax(dim=-1)
            _check_finite(log_probs)
            best = log_probs.topk(min(_FILLINGS, log_probs.shape[-1]), dim=-1)
            self._fillings = best.indices.flatten().tolist(), best.values.flatten().tolist()
        return self._fillings

    @torch.inference_mode()
    def _match(self, golden: bundle_pb2.Golden) -> list[float]:
        exact = torch_run(graphs_of(self.checkpoint, bundle_pb2.PRECISION_FP32))
        probabilities = _matched(self.checkpoint, golden, exact)
        _check_finite(probabilities)
        self._values = probabilities.tolist()
        return self._values

    @torch.inference_mode()
    def _embed(self, golden: bundle_pb2.Golden) -> list[float]:
        vector = self.checkpoint.model(*_source(self.checkpoint, golden))[0]
        _check_finite(vector)
        if not bool(vector.any()):
            raise CheckpointError("the vector of the golden request is zero: look for zeros in the model's weights")
        self._values = kept_numbers(vector)
        return self._values

    def _greedy(self, checkpoint: Checkpoint, golden: bundle_pb2.Golden, parity_error: float) -> tuple[list[int], str]:
        """Return the tokens before the first close call, and what that call is between, if there is one.

        The files that golden names are the checkpoint's.

        If the model has a forced end, it is the last of them. A server that is asked for so many tokens puts it there.
        """
        text = self.checkpoint.text_spec
        source, prefix = _source(checkpoint, golden), _frame(checkpoint, golden).prefix
        asked = f"{golden.image_path}{golden.audio_path}:{golden.question or golden.text}"
        produced, close_call = self._chosen(asked, source, prefix, parity_error)
        if not text.HasField("forced_end_id"):
            return produced, close_call
        chosen = produced[:-1] if produced and produced[-1] in text.end_ids else produced
        if not chosen:
            # The forced end alone is what any model would answer.
            return [], close_call or "nothing comes before the end, which is forced"
        return [*chosen, text.forced_end_id], close_call

    def _chosen(
        self, asked: str, source: tuple[Tensor, ...], prefix: tuple[int, ...], parity_error: float
    ) -> tuple[list[int], str]:
        """Return what _greedy does, without a forced end and with room for it."""
        text, max_new_tokens = self.checkpoint.text_spec, self.checkpoint.max_new_tokens
        assert max_new_tokens is not None
        if text.HasField("start_id"):
            given, source_in, room = [text.start_id, *prefix], source, text.max_new_tokens
        else:
            given, source_in = source[0][0].tolist(), source[1:] if self.checkpoint.sees else ()
            room = text.max_total_tokens - len(given)
        most = min(self._longest, max_new_tokens, room) - text.HasField("forced_end_id")
        produced: list[int] = []
        steps = self._steps.setdefault(asked, [])
        # An end token that was given does not end the answer. A start may be an end token too, and a prompt may end in
        # one.
        while len(produced) < most and not (produced and produced[-1] in text.end_ids):
            if len(produced) == len(steps):
                # Many texts are asked for their first token alone.
                count = 1 if not produced else most - len(produced)
                steps += self._ahead(source_in, given, produced, count)
            step = steps[len(produced)]
            margin = clear_margin(step.spread, self.precision, parity_error * step.scale)
            if not step.distance > margin:
                between = " and ".join(_shown(self.checkpoint, token) for token in step.best)
                return produced, (
                    f"{between} are {step.distance:.2g} apart in their logits, more than {margin:.2g} is needed"
                )
            produced.append(step.best[0])
        return produced, ""

    @torch.inference_mode()
    def _ahead(self, source: tuple[Tensor, ...], given: list[int], produced: list[int], count: int) -> list[_Step]:
        """Return the next steps, at most count: drafted over caches, and computed from scratch in one pass.

        A step is right after the tokens of the steps before it. So the last is the first that the draft took otherwise.
        """
        tokens = given + produced
        row = replace(row_behind(self.checkpoint, source, list(tokens)), num_given=len(given))
        if count > 1:
            graphs = graphs_of(self.checkpoint, bundle_pb2.PRECISION_FP32)
            write(torch_run(graphs), self.checkpoint, [row], count)
        else:
            row.tokens.append(-1)  # of one step, nothing is drafted
        steps: list[_Step] = []
        logits = next_logits(self.checkpoint.model, source, row.tokens[:-1], len(given))[len(tokens) - 1 :]
        for drafted, step_logits in zip(row.tokens[len(tokens) :], logits, strict=True):
            steps.append(_step(step_logits, self._tolerance))
            if steps[-1].best[0] != drafted:
                break
        return steps


def check_golden(
    checkpoint: Checkpoint, golden: bundle_pb2.Golden, run: Run, precision: bundle_pb2.Precision.ValueType
) -> None:
    """Answer the golden request with the exported graphs and compare, as a server does before it is ready.

    Raises:
        ExportError: the tokens differ, or a probability by more than GOLDEN_TOLERANCE, or a vector by more than
            EMBEDDING_TOLERANCE of its length.
    """
    task = TASKS[checkpoint.task]
    source = () if task.matches else _source(checkpoint, golden)
    if not task.writes_text:
        with torch.inference_mode():
            (actual,) = [_matched(checkpoint, golden, run)] if task.matches else values(run, checkpoint, [source[0][0]])
        if task.fills_masks:
            actual = actual.float().log_softmax(dim=-1)
            actual = actual.gather(-1, torch.tensor(golden.token_ids).view(len(actual), -1))
        if task.labels_frames:
            actual = actual.amax(dim=-1)
        error, tolerance = golden_error(golden, actual.float().flatten(), precision)
        if not error <= tolerance:  # said this way round, NaN fails
            raise ExportError(f"the golden answer of the graphs differs by {error:.2g}; a server allows {tolerance:g}")
        return
    text = checkpoint.text_spec
    starts = text.HasField("start_id")
    start = [text.start_id, *_frame(checkpoint, golden).prefix]
    if checkpoint.sees:
        row = row_seen(run, checkpoint, source)
    else:
        row = row_behind(checkpoint, source, start) if starts else Row(None, source[0][0].tolist())
    num_given = len(row.tokens)
    with torch.inference_mode():
        write(run, checkpoint, [row], len(golden.token_ids))
    if row.tokens[num_given:] != list(golden.token_ids):
        answer = f"{row.tokens[num_given:]} instead of {list(golden.token_ids)}"
        raise ExportError(f"the golden answer of the graphs differs: {answer}; a server would refuse the bundle")


def _matched(checkpoint: Checkpoint, golden: bundle_pb2.Golden, run: Run) -> Tensor:
    """Return the probabilities [labels] of a golden request to a model that matches."""
    pictures, texts = checkpoint.towers
    asked = [bundle_pb2.Golden(text=checkpoint.label_text.replace("{}", label)) for label in golden.labels]
    (picture,) = values(run, pictures, [_source(pictures, pictures.golden)[0][0]])
    labels = torch.stack(values(run, texts, [_source(texts, each)[0][0] for each in asked]))
    assert isinstance(checkpoint.model, Classifier)
    logits = checkpoint.model.scale * labels.float() @ picture.float() + checkpoint.model.bias
    return scores_of(logits, checkpoint.model.scoring)


def next_logits(
    model: nn.Module, source: tuple[Tensor, ...], tokens: list[int], num_given: int | None = None
) -> Tensor:
    """Return logits [seq, vocab] after each of the tokens, computed from scratch.

    num_given: how many of them are the start or the prompt. None: all.
    """
    assert isinstance(model, Writer)
    return model.decode_behind(len(tokens) if num_given is None else num_given, torch.tensor([tokens]), *source)[0]


def _step(logits: Tensor, tolerance: Tolerance) -> _Step:
    _check_finite(logits)
    best = logits.topk(min(2, len(logits)))
    distance = float(best.values[0] - best.values[-1])
    free = allowed(logits)
    return _Step(tuple(best.indices.tolist()), distance, float(free.std(correction=0)), tolerance.scale(free.numpy()))


def clear_margin(spread: float, precision: bundle_pb2.Precision.ValueType, difference: float) -> float:
    """Return by how much the best logit must win; spread is of all, and a logit was off by difference at most."""
    number, share = MARGIN[precision]
    return max(min(number, share * spread), 2 * difference)


def _shown(checkpoint: Checkpoint, token: int) -> str:
    piece = read_tokenizer(checkpoint, checkpoint.text_spec.target_tokenizer).id_to_token(token)
    return f"token {token}" if piece is None else f"token {token} ({piece!r})"


def _check_finite(values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise CheckpointError("the model's answer to the golden request is not finite: look for NaN in its weights")


def _answered(golden: bundle_pb2.Golden, tokens: list[int]) -> bundle_pb2.Golden:
    answered = _copy(golden)
    answered.token_ids.extend(tokens)
    return answered


def _copy(golden: bundle_pb2.Golden) -> bundle_pb2.Golden:
    copied = bundle_pb2.Golden()
    copied.CopyFrom(golden)
    return copied


def _frame(checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> Frame:
    # In a prompt with a picture, the question is no prefix of the answer.
    question = "" if checkpoint.sees else golden.question
    try:
        return frame_of(checkpoint, golden.source_language, golden.target_language, question)
    except CheckpointError as error:
        raise CheckpointError(f"golden.{error}") from error


def _source(checkpoint: Checkpoint, golden: bundle_pb2.Golden) -> tuple[Tensor, ...]:
    frame = _frame(checkpoint, golden)
    if checkpoint.sees:
        return pictured(checkpoint, golden)
    if name := golden.image_path or golden.audio_path:
        media = checkpoint.read_media(name, checkpoint.files[name])[None]
        asks = checkpoint.text is not None and encoder_asks(checkpoint.text)
        return (media, *asked_source(checkpoint, golden.question, "golden.")) if asks else (media,)
    tokenizer = read_tokenizer(checkpoint, checkpoint.text_spec.source_tokenizer)
    try:
        ids = encode_source(checkpoint, tokenizer, golden.text, frame)
    except CheckpointError as error:
        raise CheckpointError(f"the golden text {error}") from error
    source, lengths = torch.tensor([ids]), torch.tensor([len(ids)], dtype=torch.int32)
    if not TASKS[checkpoint.task].fills_masks:
        return source, lengths
    positions = positions_of(source[0], checkpoint.text_spec.mask_id)
    if not 1 <= len(positions) <= MAX_MASKS:
        token = tokenizer.id_to_token(checkpoint.text_spec.mask_id)
        raise CheckpointError(f"the golden text has {token} {len(positions)} times; 1 to {MAX_MASKS} are needed")
    return source, lengths, positions[None]
