"""Texts beside each other may share a row of memory."""

import torch

from weft_export.layers.cross_attention import CrossAttention


def test_texts_about_one_picture_share_its_memory():
    """Two questions about each of three pictures attend to what each would with a memory of its own."""
    torch.manual_seed(1)
    attention = CrossAttention(32, 4)
    pictures, questions = torch.randn(3, 10, 32), torch.randn(6, 5, 32)
    mask = torch.arange(10) < torch.tensor([10, 7, 4])[:, None, None, None]
    memory = attention.project(pictures)

    own = [each.repeat_interleave(2, dim=0) for each in memory]
    alone = attention(questions, own, mask.repeat_interleave(2, dim=0))
    torch.testing.assert_close(attention(questions, memory, mask), alone)
