"""How the weights of GPT and BERT are drawn before training."""

from torch import nn

_PAPERS_STD, _PAPERS_WIDTH = 0.02, 768


def draw_weights(model: nn.Module, d_model: int) -> None:
    """Set biases to 0, and draw matrices and embeddings from N(0, 0.02 * sqrt(768 / d_model)).

    The papers have 0.02 at width 768. A sum over d_model products is then as large at any width. With 0.02 at width 64,
    a model would begin almost at zero.
    """
    std = _PAPERS_STD * (_PAPERS_WIDTH / d_model) ** 0.5
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(weight)
        elif weight.dim() > 1:
            nn.init.normal_(weight, std=std)
