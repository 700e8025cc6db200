"""Watches what products read and write, and how much each number of it matters to the answers."""

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor, nn

from weft_export.layers.embeddings import TiedEmbedding
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.quantized_linear import MIN_COLUMNS


class ObservedProduct:
    """One product of a model during one request: rows read, and gradients of what is read and written.

    Each is a list, with a tensor [rows, width] for each call. `looked_up` and its gradients are of a tied embedding.
    """

    def __init__(self, path: str, weight: Tensor) -> None:
        self.path = path
        self.weight = weight
        self.read: list[Tensor] = []
        self.read_gradient: list[Tensor] = []
        self.written_gradient: list[Tensor] = []
        self.looked_up: list[Tensor] = []
        self.looked_up_gradient: list[Tensor] = []

    def forget(self) -> None:
        """Forget the request."""
        for rows in (self.read, self.read_gradient, self.written_gradient, self.looked_up, self.looked_up_gradient):
            rows.clear()


class _WatchedLinear(nn.Module):
    def __init__(self, linear: nn.Linear, product: ObservedProduct) -> None:
        super().__init__()
        self.linear = linear
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        return _watched(self.product, x, self.linear)


class _WatchedEmbedding(nn.Module):
    def __init__(self, embedding: TiedEmbedding, product: ObservedProduct) -> None:
        super().__init__()
        self.embedding = embedding
        self.product = product

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.embedding(ids)
        return _seen(vectors, self.product.looked_up, self.product.looked_up_gradient)

    def logits(self, x: Tensor) -> Tensor:
        return _watched(self.product, x, self.embedding.logits)


def watch(model: nn.Module) -> dict[str, ObservedProduct]:
    """Put watched modules into a model, in place of those that would be rounded. Returns them by path."""
    products: dict[str, ObservedProduct] = {}
    _watch_in(model, "", products)
    return products


def _watch_in(module: nn.Module, path: str, products: dict[str, ObservedProduct]) -> None:
    for name, child in module.named_children():
        if is_product(child):
            product = products[path + name] = ObservedProduct(path + name, child.weight)
            setattr(module, name, _watched_module(child, product))
        elif descends(child):
            _watch_in(child, f"{path}{name}.", products)


def _watched_module(module: nn.Linear | TiedEmbedding, product: ObservedProduct) -> nn.Module:
    if isinstance(module, nn.Linear):
        return _WatchedLinear(module, product)
    return _WatchedEmbedding(module, product)


def is_product(module: nn.Module) -> TypeGuard[nn.Linear | TiedEmbedding]:
    """Whether a module is a product that would be rounded."""
    if isinstance(module, nn.Linear):
        return module.out_features >= MIN_COLUMNS
    return isinstance(module, TiedEmbedding)


def descends(module: nn.Module) -> bool:
    """Whether there may be products in a module: not in patches, which are projected once and keep their precision."""
    return not isinstance(module, PatchEmbedding)


def _watched(product: ObservedProduct, x: Tensor, multiply: Callable[[Tensor], Tensor]) -> Tensor:
    out = multiply(_seen(x, product.read, product.read_gradient))
    return _seen(out, [], product.written_gradient)


def _seen(x: Tensor, rows: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """Return x for one reader alone, whose rows and gradients are kept. Gradients come in the opposite order.

    An expert that nobody chose reads no row, and nothing of it is kept.
    """
    if not x.numel():
        return x
    rows.append(x.detach().flatten(0, -2))
    if not torch.is_grad_enabled():
        return x
    own = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    # torch types neither this nor backward().
    own.register_hook(lambda gradient: gradients.insert(0, gradient.flatten(0, -2)))  # type: ignore[no-untyped-call]
    return own
