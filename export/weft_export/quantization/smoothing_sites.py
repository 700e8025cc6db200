"""Where a model can be smoothed: the vectors that products read, and what makes each of them.

For example, a norm's weight is divided by factors, and the columns of the products that read it are multiplied by them.
The function stays the same, and the graph gets no operator more ("SmoothQuant", Xiao et al. 2023, section 4).

What else a product reads it can divide by itself, which is an operator more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from weft_export.families.causal import CausalTransformer
from weft_export.layers.decoder import Decoder
from weft_export.layers.embeddings import Embeddings, TiedEmbedding
from weft_export.layers.feed_forward import GatedFeedForward
from weft_export.layers.style import RmsNorm, StyledLayer

# Of a layer, the norm before a sublayer, and the products that may read it.
_READERS = (
    ("attention_norm", "attention", ("qkv",)),
    ("self_attention_norm", "self_attention", ("qkv",)),
    ("cross_attention_norm", "cross_attention", ("query",)),
    ("feed_forward_norm", "feed_forward", ("gate_proj", "up_proj")),
)


@dataclass(frozen=True)
class Site:
    """One such vector, by the paths of modules: what makes it (a norm or a product), and all products that read it.

    What makes it serves nothing else. Without a maker, its one reader divides what it reads.
    """

    maker: str | None
    readers: tuple[str, ...]


def sites_of(model: nn.Module) -> list[Site]:
    """Return the sites of a model. Where a norm's vector goes elsewhere too, as in post-norm layers, there is none."""
    sites = [site for path, module in model.named_modules() for site in _sites_at(f"{path}." if path else "", module)]
    return [site for site in sites if site.maker is not None and _is_divisible(model.get_submodule(site.maker))]


def own_sites(model: nn.Module) -> list[Site]:
    """Return a site of its own for each linear product that reads none of those of `sites_of`."""
    readers = {path for site in sites_of(model) for path in site.readers}
    products = (path for path, module in model.named_modules() if isinstance(module, nn.Linear))
    return [Site(None, (path,)) for path in products if path not in readers]


def _sites_at(path: str, module: nn.Module) -> Iterator[Site]:
    if isinstance(module, StyledLayer):
        suffix = {"pre": "", "parallel": "", "sandwich": ".before"}.get(module.residual)
        for norm, sublayer, names in _READERS if suffix is not None else ():
            given: Any = getattr(module, sublayer, None)
            readers = tuple(f"{path}{sublayer}.{name}" for name in names if hasattr(given, name))
            if readers:
                yield Site(f"{path}{norm}{suffix}", readers)
    elif isinstance(module, GatedFeedForward) and module.limit is None:
        yield Site(f"{path}up_proj", (f"{path}down_proj",))
    elif isinstance(module, CausalTransformer | Decoder):
        heads = list(_heads(module))
        if len(heads) == 1:
            yield Site(f"{path}norm", (path + heads[0],))


def _heads(module: nn.Module) -> Iterator[str]:
    """Yield the paths of the output projections in a decoder."""
    for path, part in module.named_modules():
        if isinstance(part, Embeddings) and part.projection is not None:
            yield f"{path}.projection"
            return
        if isinstance(part, TiedEmbedding):
            yield path


def _is_divisible(maker: nn.Module) -> bool:
    return isinstance(maker, RmsNorm | nn.Linear) or (isinstance(maker, nn.LayerNorm) and maker.elementwise_affine)
