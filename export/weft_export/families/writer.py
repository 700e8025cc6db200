"""What a family of models that write text gives the exporter: an encoder, a step over states, and itself whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.explaining import Explanation
from weft_export.layers.run import PackedRun, Run
from weft_proto.v1 import bundle_pb2

KV_CACHE, MEMORY, RECURRENT = (
    bundle_pb2.STATE_KIND_KV_CACHE,
    bundle_pb2.STATE_KIND_MEMORY,
    bundle_pb2.STATE_KIND_RECURRENT,
)


@dataclass(frozen=True)
class State:
    """One state tensor of a sequence; across sequences it is [batch, *shape].

    length_axis: the axis of shape that grows with the sequence (KV_CACHE) or with the source (MEMORY).
    encoded: the encoder writes it at admission. This is true for every MEMORY.
    returned: a step returns it. Only a MEMORY that no operator hands on may say no.
    rounded: it holds the levels of a CacheRounding, in int8. The rest of the model may be in another type.
    """

    kind: bundle_pb2.StateKind.ValueType
    name: str
    shape: tuple[int, ...]
    length_axis: int = 0
    encoded: bool = False
    returned: bool = True
    rounded: bool = False


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    """Return states that alternate between keys and values as pairs of both."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def flat(layers: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the states of each layer, such as keys and values, behind each other."""
    return tuple(tensor for layer in layers for tensor in layer)


class Writer(nn.Module):
    """A model that writes text, token by token. `source` is what its encoder takes, and empty without an encoder.

    Text: input_ids int64 [batch, seq] right-padded and lengths int32 [batch]. Image: pixel_values [batch, C, H, W].
    Recording: input_features [batch, mels, frames]. Of a model that reads questions: a picture's, and then a text's.
    Of a model that sees, it is the pictures of a prompt, and empty without any.
    """

    config: Any
    states: tuple[State, ...] = ()
    """In the order of the decoder's inputs."""
    max_candidates: int = 16
    """How many of the most probable tokens a decoder returns. A sampler that needs more reads the logits.

    Translations and captions are mostly greedy, and ONNX Runtime finds 16 in a fifth of the time of 32.
    """
    attention_heads: tuple[int, ...] = ()
    """How many heads each layer that can explain has, in order. Empty when nothing attends to the source."""
    mixes: bool = False
    """Whether a step can read a piece of a prompt beside its rows."""
    verifies: bool = False
    """Whether a step can be asked for the logits behind several tokens of a row: see last_positions."""
    scores: bool = False
    """Whether graphs/score_graph.py can make a graph that scores a given answer of the graphs that decode.

    It can of a recurrent family, and of one whose step reads a position's logits of last_position alone.
    """
    reads_pieces: bool = False
    """Whether a run reads several tokens of a row although there is a RECURRENT state.

    That state is then what it is behind the last real one. A family without such a state always reads several.
    """
    sees: bool = False
    """Whether its prompts may hold pictures. Its config has `sight`, and a run features."""
    reads_question: bool = False
    """Whether its encoder reads a picture and a question behind it. Its config has `sight`."""
    blocks_of: int = 0
    """How many tokens of a source an encoder reads together that reads it in blocks. 0: it does not."""
    offsets_positions: bool = False
    """Whether a run is told position offsets: a place of a picture has three positions."""
    bidirectional: bundle_pb2.Bidirectional.ValueType = bundle_pb2.BIDIRECTIONAL_UNSPECIFIED
    """Which stretches of its prompts are read in both directions, of a model that sees."""
    explains_target: bool = False
    """Whether explain also says what was attended to among target_ids: of a family that answers questions.

    A bundle may be older than that. Who proves more of it sets this to False, and explain goes by it.
    """
    summarises: bool = False
    """Whether explain has a summary of all layers. Without one, the checkpoint names the layer that explains."""

    @property
    def unadapted(self) -> str | None:
        """Why it takes no adapters. None: it does."""
        return None

    @property
    def unpaged(self) -> str | None:
        """Why its caches cannot lie in blocks. None: they can."""
        return "only models that go on from a prompt keep keys and values in blocks"

    @property
    def feature_width(self) -> int:
        """How many numbers a place of a picture has in a prompt, of a model that sees."""
        width: int = self.config.d_model
        return width

    @property
    def cached_attentions(self) -> Sequence[nn.Module]:
        """The attention behind each pair of states that are keys and values, in order: of each KV_CACHE, or of none.

        A recurrent family has none: what its attention looks at is no keys and values of several heads.
        """
        return ()

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return what the encoder writes: one [batch, ...] tensor for each encoded state, in order."""
        raise NotImplementedError

    def see(self, pixel_values: Tensor) -> Tensor:
        """Return what prompts or sources have of pictures, [batch, places, d_model], of a model with `sight`."""
        raise NotImplementedError

    def shown(self, *source: Tensor) -> Tensor:
        """Return the features of a prompt's pictures as they stand in it, [pictures, places, d_model].

        source: pixel_values, and of a model that reads tiles perhaps how a picture is cut.
        """
        return self.see(*source)

    def placed(self, ids: Tensor, features: Tensor | None) -> Tensor:
        """Return what a model that sees reads at each of ids [batch, seq]: [batch, seq, d_model], zeros at its tokens.

        features: what `see` gave for the pictures, in the order of their places. None: there are none.
        """
        raise NotImplementedError

    def offsets(self, ids: Tensor, *source: Tensor) -> Tensor:
        """Return the position offsets of ids [1, seq], of a model that is told them, [1, seq + 1, 3]: see Run.

        The last row is that of what comes behind them. source: as of `shown`; ids may end within its last picture.
        """
        raise NotImplementedError

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] after each row's last real token, and the present of each returned state.

        Of a run that verifies they are [rows, vocab], of which run.lengths says how many there are.
        """
        raise NotImplementedError

    def mixed_step(
        self, run: Run, states: Sequence[Tensor], prompt: Run, prompt_states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Do a step of rows and one of a prompt at once: all their tokens share each product.

        run has seq 1. prompt has batch 1, and states of its own. Returns logits [batch + 1, vocab], of which the
        prompt's are the last, and the present states of both.
        """
        raise NotImplementedError

    def packed_step(self, run: PackedRun, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Do a step of many rows over caches in blocks, [blocks, block_tokens, kv_heads, head_dim]: in a graph alone.

        Returns logits [rows, vocab] after each row's last token, and the present caches.
        """
        raise NotImplementedError

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced and without states."""
        raise NotImplementedError

    def decode_behind(self, num_given: int, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - most need not
        """Return the same of a prompt of num_given tokens with an answer behind it."""
        return self.decode(target_ids, *source)

    def stretches(self, tokens: list[int], num_given: int) -> list[tuple[int, int]]:  # noqa: ARG002 - most have none
        """Return where each stretch begins and ends that is read in both directions, in their order.

        tokens: those of a prompt, num_given, and of an answer.
        """
        return []

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return what each produced token attended to, for a batch of one; layer and head are int64 [1].

        There are two cases:

        1. With an encoder, there is a row for each of target_ids [1, target].
        2. Without one, the prompt is the source, and target_ids are the produced tokens but the last. There is a row
           for the prompt's last token, and one for each of target_ids.

        Where explains_target or reads_question says so, there is a third tensor: see Explanation.
        """
        raise NotImplementedError
