"""BART (Lewis et al. 2020) and what was built on it; each kind below says in what it differs."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import (
    Names,
    both,
    both_rows,
    computed,
    first_rows,
    from_row,
    layer_names,
    tied,
)
from weft_export.families.bart import BartConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

FIRST_ROW = 2
"""The row of the first position in tables of learned ones: fairseq counted from behind its padding token."""


def sizes_in(residual: str, *, norm: bool, fairseq: bool = False) -> Callable[[HfCheckpoint], BartConfig]:
    """Return what reads the sizes of a kind.

    residual: where the norms stand. norm: words are normed.
    fairseq: M2M-100's. Its logits have no bias, its words are scaled unless config.json says otherwise, and its
        positions count from behind the padding token.
    """

    def sizes(hf: HfCheckpoint) -> BartConfig:
        fields = hf.fields
        d_model, longest = fields.whole("d_model"), fields.whole("max_position_embeddings", 1024)
        fields.only("is_encoder_decoder", True)
        fields.skip(
            "num_hidden_layers",
            "init_std",
            "is_decoder",
            "share_encoder_decoder_embeddings",
            "static_position_embeddings",
        )
        if fairseq:
            fields.only("pad_token_id", FIRST_ROW - 1)
            if hf.generation.start_id == FIRST_ROW - 1:
                raise fields.wrong("decoder_start_token_id", "cannot be the padding token, which has no position")
        _only_their_own(hf, residual, norm=norm)
        vocab_size = fields.whole("vocab_size")
        shared = fields.flag("share_encoder_decoder_embeddings", default=True)
        written = fields.whole("decoder_vocab_size", vocab_size)
        return BartConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size if shared else written,
            max_source_tokens=hf.max_source_tokens(longest),
            max_target_tokens=hf.max_tokens(longest, 512),
            d_model=d_model,
            num_encoder_heads=fields.whole("encoder_attention_heads"),
            num_decoder_heads=fields.whole("decoder_attention_heads"),
            d_encoder_ff=fields.whole("encoder_ffn_dim"),
            d_decoder_ff=fields.whole("decoder_ffn_dim"),
            num_encoder_layers=fields.whole("encoder_layers"),
            num_decoder_layers=fields.whole("decoder_layers"),
            style=Style(
                residual=residual,
                activation=fields.among("activation_function", ACTIVATIONS, "relu" if fairseq else "gelu"),
            ),
            embeddings=EmbeddingStyle(
                scale=math.sqrt(d_model) if fields.flag("scale_embedding", default=fairseq) else 1.0,
                positions=True,
                norm=norm,
                tied=fields.flag("tie_word_embeddings", default=True),
                bias=not fairseq or bool(hf.generation.banned),
            ),
        )

    return sizes


def _only_their_own(hf: HfCheckpoint, residual: str, *, norm: bool) -> None:
    """Refuse what old config.json of this kind may ask for, and transformers has forgotten."""
    pre = residual == "pre"
    for name, value in (
        ("normalize_before", pre),
        ("normalize_embedding", norm),
        ("add_final_layer_norm", pre),
        ("add_bias_logits", False),
    ):
        hf.fields.only(name, value)
    # Old files have them, and transformers does not read them.
    hf.fields.skip("extra_pos_embeddings", "force_bos_token_to_be_generated")


def names_with(
    positions: Callable[[BartConfig, str, int, str], Names], body: str = "model"
) -> Callable[[BartConfig], Names]:
    """Return what makes the table of names; positions gives the rows for the places of a side.

    body: what names of theirs begin with.
    """

    def names(config: BartConfig) -> Names:
        longest_source = config.num_places + config.max_source_tokens
        return {
            **_words(body, "embeddings", "encoder", "decoder"),
            **_words(body, "decoder.embedding", "decoder", "encoder", *(["lm_head.weight"] * config.embeddings.tied)),
            **positions(config, "embeddings.positions.weight", longest_source, "encoder"),
            **positions(config, "decoder.embedding.positions.weight", config.max_target_tokens, "decoder"),
            "decoder.embedding.projection.weight": "lm_head.weight",
            "decoder.embedding.bias": computed(
                lambda bias: torch.zeros(config.target_vocab_size) if bias is None else bias.flatten(),
                "final_logits_bias",
                optional=("final_logits_bias",),
            ),
            **layer_names(_layer("attention", "self_attn"), "encoder.layers.{}.", f"{body}.encoder.layers.{{}}."),
            **decoder_names("decoder.layers.{}.", f"{body}.decoder.layers.{{}}."),
            **both("encoder.norm", f"{body}.encoder.layer_norm"),
            **both("decoder.norm", f"{body}.decoder.layer_norm"),
        }

    return names


def _words(body: str, ours: str, side: str, other: str, *more: str) -> Names:
    """Tied tables are saved under one of these names, or under several. more: other names of this side's."""
    own, others = (f"{body}.{each}.embed_tokens.weight" for each in (side, other))
    tokens = tied(f"{body}.shared.weight", own, *more, instead=(others, "lm_head.weight"))
    return {f"{ours}.tokens.weight": tokens, **both(f"{ours}.norm", f"{body}.{side}.layernorm_embedding")}


def decoder_names(ours: str, theirs: str) -> Names:
    """Return the names of a decoder's layers under two prefixes."""
    return layer_names({**_layer("self_attention", "self_attn"), **_CROSS}, ours, theirs)


def _layer(attention: str, theirs: str) -> Names:
    return {
        **both_rows(f"{attention}.qkv", f"{theirs}.{{q,k,v}}_proj"),
        **both(f"{attention}.output", f"{theirs}.out_proj"),
        **both(f"{attention}_norm", f"{theirs}_layer_norm"),
        **both("feed_forward.up_proj", "fc1"),
        **both("feed_forward.down_proj", "fc2"),
        **both("feed_forward_norm", "final_layer_norm"),
    }


_CROSS: Names = {
    **both("cross_attention.query", "encoder_attn.q_proj"),
    **both("cross_attention.key", "encoder_attn.k_proj"),
    **both("cross_attention.value", "encoder_attn.v_proj"),
    **both("cross_attention.output", "encoder_attn.out_proj"),
    **both("cross_attention_norm", "encoder_attn_layer_norm"),
}


def learned(_: BartConfig, ours: str, count: int, side: str) -> Names:
    """Positions are learned, from row 2 on."""
    return {ours: from_row(FIRST_ROW, f"model.{side}.embed_positions.weight", count)}


def halves(config: BartConfig, ours: str, count: int, side: str) -> Names:
    """Positions are Vaswani's sinusoids, first all sines and then all cosines. Some files hold them."""
    return {
        ours: first_rows(count, lambda: halved_table(count, config.d_model), f"model.{side}.embed_positions.weight")
    }


def tensor2tensor(config: BartConfig, ours: str, count: int, _: str) -> Names:
    """Positions are sinusoids whose slowest pair turns 10,000 times slower than the fastest; no file holds them."""
    return {ours: first_rows(count, lambda: slowest_table(count + FIRST_ROW, config.d_model)[FIRST_ROW:])}


def halved_table(count: int, d_model: int) -> Tensor:
    """Return sin and cos of pos / 10000^(2i/d_model), [count, d_model]: the sines come first."""
    angle = torch.arange(count, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    )
    return torch.cat((angle.sin(), angle.cos()[:, : d_model // 2]), dim=1).float()


def slowest_table(count: int, d_model: int) -> Tensor:
    """Return sin and cos of pos / 10000^(i/(d_model/2 - 1)), [count, d_model], in float32 as theirs."""
    half = d_model // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angle = torch.arange(count, dtype=torch.float32)[:, None] * frequency
    table = torch.cat((angle.sin(), angle.cos()), dim=1)
    return torch.cat((table, torch.zeros(count, d_model - 2 * half)), dim=1)


def _kind(
    model_type: str,
    architecture: str,
    sizes: Callable[[HfCheckpoint], BartConfig],
    positions: Callable[..., Names],
) -> Converter:
    return Converter(
        model_type=model_type,
        architectures=(architecture,),
        family="bart",
        sizes=sizes,
        names=names_with(positions),
        ignored=(
            r"model\.(encoder|decoder)\.embed_positions\.weights?",
            r"model\.(encoder|decoder)\.version",
            r"model\.(encoder|decoder)\.embed_positions\._float_tensor",
        ),
        bias="decoder.embedding.bias",
    )


BART = _kind("bart", "BartForConditionalGeneration", sizes_in("post", norm=True), learned)
MARIAN = _kind("marian", "MarianMTModel", sizes_in("post", norm=False), halves)
MBART = _kind("mbart", "MBartForConditionalGeneration", sizes_in("pre", norm=True), learned)
PEGASUS = _kind("pegasus", "PegasusForConditionalGeneration", sizes_in("pre", norm=False), halves)
M2M_100 = _kind("m2m_100", "M2M100ForConditionalGeneration", sizes_in("pre", norm=False, fairseq=True), tensor2tensor)
CONVERTERS = (MARIAN, BART, MBART, M2M_100, PEGASUS)
