"""How far the rounding of each product would move the answers, with and without smoothing.

Let g be the gradient of a sampled answer's log-probability at what a product writes, and e the rounding's error there.
Then answers move by a Kullback-Leibler divergence of E[(g e)^2] / 2, up to terms of third order ("New Insights and
Perspectives on the Natural Gradient Method", Martens 2020, section 5). Errors of different products and rows are taken
to be independent: on SmolLM2, the sum over products was up to 1.7 times what was measured. One pass there and back
serves all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.sharing import sharing
from weft_export.families.classifier import IDENTITY, SOFTMAX
from weft_export.families.writer import Writer
from weft_export.layers.block_linear import in_blocks
from weft_export.layers.quantized_linear import LEVELS, quantise
from weft_export.quantization.block_kinds import BlockKind, rounded_inputs, rounded_weights
from weft_export.quantization.observers import ObservedProduct, watch
from weft_export.quantization.requests import Request
from weft_export.quantization.smoothing_sites import Site
from weft_proto.tasks import TASKS, Task

STRENGTHS = (0.5, 0.6, 0.7, 0.8)
"""Those that are tried. At 1 all that is hard to round is moved from the activations to the weights."""
MAX_ROWS = 256
"""Of a request, how many tokens are read. The rest is cut off."""
SHARPNESS = 10.0
"""Nats between two vectors, for each unit of 1 - cosine. MAX_EFFECT is then a cosine of 0.999."""
_LEAST = 1e-5
# Of the errors of so many weights in a row of a block, the mean square is kept. So they take little memory.
_SIZE = 32
Key = TypeVar("Key", tuple[str, float], tuple[str, BlockKind])
BlockEffects = Mapping[tuple[str, BlockKind], float]
"""By how many nats an answer moves, by a product's path and the way in which it is rounded in blocks."""


@dataclass(frozen=True)
class Effects:
    """By how many nats an answer, or a token of it, moves when one product is rounded.

    plain: of each product, by path.
    smoothed: of each reader of a site, by path and strength; and the factors of the site, by it and the strength.
    """

    plain: Mapping[str, float]
    smoothed: Mapping[tuple[str, float], float]
    factors: Mapping[tuple[Site, float], Tensor]


@dataclass(frozen=True)
class _Trial:
    """One way to round a product: the strength and factors of its smoothing, and the steps of its columns."""

    strength: float
    factors: Tensor | None
    steps: Tensor


def effects_of(checkpoint: Checkpoint, requests: Sequence[Request], sites: Sequence[Site]) -> Effects:
    """Measure all products on requests, of which there is one at least."""
    model = sharing(checkpoint.model)
    products = watch(model)
    requests = [cut(request) for request in requests]
    largest = _largest(model, products, requests)
    factors = {
        (site, strength): _factors(site, strength, largest, products)
        for site in sites
        for strength in STRENGTHS
        if all(path in largest for path in site.readers)
    }
    trials = _trials(products, sites, factors)
    tried = {(path, trial.strength): trial for path, each in trials.items() for trial in each}

    def squares(key: tuple[str, float]) -> float:
        return _squares(products[key[0]], tried[key])

    means = _means(checkpoint, model, products, requests, tried, squares)
    plain = {path: effect for (path, strength), effect in means.items() if strength == 0}
    return Effects(plain, {key: effect for key, effect in means.items() if key[1] > 0}, factors)


def _means(
    checkpoint: Checkpoint,
    model: nn.Module,
    products: Mapping[str, ObservedProduct],
    requests: Iterable[Request],
    tried: Iterable[Key],
    squares: Callable[[Key], float],
) -> dict[Key, float]:
    """Return the effect of each way that is tried: squares returns what one adds after a pass there and back."""
    sums = dict.fromkeys(tried, 0.0)
    num_answers = 0
    generator = torch.Generator().manual_seed(2)
    for request in requests:
        num_answers += there_and_back(model, request, generator, TASKS[checkpoint.task])
        for key in sums:
            sums[key] += squares(key)
        for product in products.values():
            product.forget()
    # Where a gradient overflows nothing is known, and the quality gate has to judge.
    return {key: total / 2 / num_answers if math.isfinite(total) else 0.0 for key, total in sums.items()}


def _largest(
    model: nn.Module, products: Mapping[str, ObservedProduct], requests: Sequence[Request]
) -> dict[str, Tensor]:
    """Return the largest magnitude of each channel that a product reads, by path; none if it is never asked."""
    largest: dict[str, Tensor] = {}
    with torch.no_grad():
        for request in requests:
            logits_of(model, request)
            for path, product in products.items():
                for rows in product.read:
                    found = rows.abs().amax(dim=0)
                    largest[path] = torch.maximum(largest[path], found) if path in largest else found
                product.forget()
    return largest


def _trials(
    products: Mapping[str, ObservedProduct], sites: Sequence[Site], factors: Mapping[tuple[Site, float], Tensor]
) -> dict[str, list[_Trial]]:
    trials = {path: [_Trial(0.0, None, _steps(product.weight, None))] for path, product in products.items()}
    for site in sites:
        for strength in STRENGTHS:
            scale = factors.get((site, strength))
            for path in site.readers if scale is not None else ():
                trials[path].append(_Trial(strength, scale, _steps(products[path].weight, scale)))
    return trials


def _factors(
    site: Site, strength: float, largest: Mapping[str, Tensor], products: Mapping[str, ObservedProduct]
) -> Tensor:
    """Return s_j = max|X_j|^strength / max|W_j|^(1 - strength) for each channel j (SmoothQuant, eq. 4).

    They are divided by their geometric mean, which no rounding notices: each row and each column has its own scale.
    """
    inputs = largest[site.readers[0]].clamp(min=_LEAST)
    weights = torch.stack([products[path].weight.abs().amax(dim=0) for path in site.readers]).amax(dim=0)
    factors = inputs**strength / weights.clamp(min=_LEAST) ** (1 - strength)
    return factors / factors.log().mean().exp()


def _steps(weight: Tensor, factors: Tensor | None) -> Tensor:
    """Return the step of each column of a product, which is a row [d_in] of its weight."""
    return (weight if factors is None else weight * factors).abs().amax(dim=1) / LEVELS


def _squares(product: ObservedProduct, trial: _Trial) -> float:
    """Return the sum over rows of (g e)^2, e being the error of the row and, apart from that, of the weights."""
    if not product.read_gradient:
        return 0.0
    factors = trial.factors
    rows, gradients = torch.cat(product.read), torch.cat(product.read_gradient)
    smooth = rows if factors is None else rows / factors
    error = _error(smooth) if factors is None else _error(smooth) * factors
    of_rows = (gradients * error).sum(dim=1).square().sum()
    # An error of a weight is anywhere within half a step, so its variance is a twelfth of the step's square.
    written = torch.cat(product.written_gradient).square() @ trial.steps.square()
    of_weights = (written * smooth.square().sum(dim=1)).sum() / 12
    total = of_rows + of_weights
    if product.looked_up:
        vectors = torch.cat(product.looked_up)
        error = _error(vectors) if factors is None else _error(vectors * factors) / factors
        total = total + (torch.cat(product.looked_up_gradient) * error).sum(dim=1).square().sum()
    return float(total)


def _error(rows: Tensor) -> Tensor:
    levels, scale = quantise(rows)
    return levels * scale - rows


def block_effects(
    checkpoint: Checkpoint,
    requests: Sequence[Request],
    ladders: Mapping[str, Sequence[BlockKind]],
    made: Mapping[str, Tensor] = MappingProxyType({}),
    inputs: Mapping[str, Tensor] = MappingProxyType({}),
) -> BlockEffects:
    """Return by how many nats an answer, or a token of it, moves when one product is rounded in one way.

    ladders are the ways to try of all products, by path. Of the requests there is one at least. made are weights in the
    first of these ways, in float32, and inputs [rows, width] what they were made for, of the products that they are
    known of.
    """
    model = sharing(checkpoint.model)
    products = watch(model)
    tried = [(path, kind) for path, ladder in ladders.items() for kind in ladder]

    def errors_of(path: str, kind: BlockKind) -> Tensor:
        weight = products[path].weight.detach()
        is_made = path in made and kind is ladders[path][0]
        error = (made[path] if is_made else rounded_weights(weight, kind)) - weight
        means = in_blocks(error.square(), _SIZE).mean(dim=-1)
        return means * _told(error, means, inputs[path]) if is_made and path in inputs else means

    errors = {(path, kind): errors_of(path, kind) for path, kind in tried}

    def squares(key: tuple[str, BlockKind]) -> float:
        return _block_squares(products[key[0]], key[1], errors[key])

    return _means(checkpoint, model, products, map(cut, requests), tried, squares)


def _told(error: Tensor, means: Tensor, inputs: Tensor) -> Tensor:
    """Return what the errors of a row of weights do, over what they would do if they were independent [n, 1]."""
    moved = (inputs @ error.T).square().sum(dim=0)
    independent = means @ in_blocks(inputs.square().sum(dim=0), _SIZE).sum(dim=-1)
    return torch.where(independent > 0, moved / independent, 1)[:, None]


def _block_squares(product: ObservedProduct, kind: BlockKind, errors: Tensor) -> float:
    """Do the same as _squares for a product that is rounded in blocks."""
    if not product.read_gradient:
        return 0.0
    rows = torch.cat(product.read)
    total = _moved(product.read_gradient, rounded_inputs(rows, kind) - rows)
    written = torch.cat(product.written_gradient).square() @ errors
    total = total + (written * in_blocks(rows.square(), _SIZE).sum(dim=-1)).sum()
    if product.looked_up:
        vectors = torch.cat(product.looked_up)
        total = total + _moved(product.looked_up_gradient, rounded_weights(vectors, kind) - vectors)
    return float(total)


def _moved(gradients: Sequence[Tensor], error: Tensor) -> Tensor:
    return (torch.cat(tuple(gradients)) * error).sum(dim=1).square().sum()


def there_and_back(model: nn.Module, request: Request, generator: torch.Generator, task: Task) -> int:
    """Sample answers, and find the gradients of their log-probability; returns how many there were."""
    if task.embeds:
        return _vector_and_back(model, request, generator)
    if task.has_labels and not task.takes_context and getattr(model, "scoring", SOFTMAX) == IDENTITY:
        return _values_and_back(model, request, generator)
    with torch.enable_grad():
        logits = _choices(logits_of(model, request), model, task).log_softmax(dim=-1)
        sampled = torch.multinomial(logits.detach().exp(), 1, generator=generator)
        if logits.requires_grad:  # otherwise there is no product in the model
            logits.gather(1, sampled).sum().backward()  # type: ignore[no-untyped-call]
    return len(logits)


def _choices(logits: Tensor, model: nn.Module, task: Task) -> Tensor:
    """Return logits [choices, alternatives]: each row is one choice that an answer makes."""
    if task.takes_context:
        # At which token it starts, and at which it ends.
        return logits[0].t()
    rows = logits.reshape(-1, logits.shape[-1])
    are_apart = task.has_labels and getattr(model, "scoring", SOFTMAX) != SOFTMAX
    # Each label by itself is right or is not.
    return nn.functional.pad(rows.reshape(-1, 1), (0, 1)) if are_apart or rows.shape[-1] == 1 else rows


def _vector_and_back(model: nn.Module, request: Request, generator: torch.Generator) -> int:
    """Do the same for a vector, which is no distribution. It is taken to mean one around it.

    Two vectors of length 1 are then SHARPNESS (1 - cosine) nats apart, to second order.
    """
    with torch.enable_grad():
        # Of many vectors each counts.
        vectors = nn.functional.normalize(logits_of(model, request).flatten(0, -2), dim=-1)
        sampled = torch.randn(vectors.shape, generator=generator)
        if vectors.requires_grad:
            (SHARPNESS**0.5 * (vectors * sampled).sum()).backward()
    return len(vectors)


def _values_and_back(model: nn.Module, request: Request, generator: torch.Generator) -> int:
    """Do the same for values, each taken to mean a normal distribution around it.

    A value that moves by d is then d * d / 2 nats away, however large it is: by 0.14 at MAX_EFFECT.
    """
    with torch.enable_grad():
        values = logits_of(model, request)
        sampled = torch.randn(values.shape, generator=generator)
        if values.requires_grad:
            (values * sampled).sum().backward()  # type: ignore[no-untyped-call]
    return values.numel()


def logits_of(model: nn.Module, request: Request) -> Tensor:
    """Return what a model says to a request: logits, or a vector."""
    source, tokens = request
    logits: Tensor = model.decode(torch.tensor([tokens]), *source) if isinstance(model, Writer) else model(*source)
    return logits


def cut(request: Request) -> Request:
    """Return a request of MAX_ROWS tokens at most, on either side."""
    source, tokens = request
    if len(source) > 1:  # ids and their length, and perhaps positions
        ids, length, *positions = source
        kept = [each.clamp(max=MAX_ROWS - 1) for each in positions]
        source = ids[:, :MAX_ROWS], length.clamp(max=MAX_ROWS), *kept
    return source, tokens[:MAX_ROWS]
