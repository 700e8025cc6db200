"""How generate() would write, as the model's own Decoding: beams, draws, penalties, and words that never come."""

from typing import Any

from weft_proto.decoding import (
    BIAS,
    DECAY_FACTOR,
    LENGTH_PENALTY,
    MAX_PHRASE_TOKENS,
    MAX_PHRASES,
    MAX_TOKENS,
    PENALTIES,
    SAMPLING,
)
from weft_proto.v1 import common_pb2

# What generate() draws from where a checkpoint says nothing: transformers' own default.
_TOP_K = 50
_EARLY_STOPPING = {
    False: common_pb2.EARLY_STOPPING_HEURISTIC,
    True: common_pb2.EARLY_STOPPING_FULL,
    "never": common_pb2.EARLY_STOPPING_NEVER,
}
# generate() has no seed, nor the penalties of OpenAI's API.
_OTHERS = ("seed", "presence_penalty", "frequency_penalty")
_FIELDS = [each for each in (*SAMPLING, LENGTH_PENALTY, *PENALTIES) if each.name not in _OTHERS]
# How far inside an end that is outside the range. A float32 that is nearer could be that end.
_INSIDE = 1e-6
# For each setting that is a number: what changes nothing, and from where to where a request may ask for it.
_NEUTRAL: dict[str, tuple[float | None, float, float]] = {
    "num_beams": (1, 1, 64),
    "num_return_sequences": (1, 1, 64),
} | {
    each.name: (
        each.default,
        each.minimum + _INSIDE * (each.without == "minimum"),
        (each.maximum or 2**31) - _INSIDE * (each.without == "maximum"),
    )
    for each in _FIELDS
}
_WHOLE = {"num_beams", "num_return_sequences", *(each.name for each in _FIELDS if each.kind is int)}
# Settings that no Decoding has, and what changes nothing.
_UNKNOWN: dict[str, object] = {
    "guidance_scale": 1,
    "stop_strings": [],
    "penalty_alpha": 0,
    "force_words_ids": [],
    "constraints": [],
    "watermarking_config": {},
    "dola_layers": [],
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "top_h": None,
    "max_time": None,
    "token_healing": False,
    # Whisper's, of silence and of recordings that are longer than a window.
    "compression_ratio_threshold": None,
    "condition_on_prev_tokens": False,
    "logprob_threshold": None,
    "no_speech_threshold": None,
}
# Read by a method of its own, or elsewhere: by generation.py and audio_processor.py.
_READ = [
    "do_sample",
    "early_stopping",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
    "renormalize_logits",
    "eos_token_id",
    "pad_token_id",
    "bos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "forced_decoder_ids",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "lang_to_id",
    "task_to_id",
    "language",
    "task",
    "return_timestamps",
    "no_timestamps_token_id",
    "max_initial_timestamp_index",
]
# How it is computed, what is returned beside the tokens, and who wrote the file.
_WITHOUT_EFFECT = [
    "use_cache",
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "prefill_chunk_size",
    "low_memory",
    "compile_config",
    "disable_compile",
    "continuous_batching_config",
    "use_mtp",
    "remove_invalid_values",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_lookbehind",
    "assistant_ensemble_weight",
    "target_lookbehind",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
    "speculation_type",
    "transformers_version",
    "transformers.js_config",
    "_from_model_config",
    "_commit_hash",
    # Whisper's: they say what the tokens are, which others say too, or are for prompts, times of words or a batch.
    "force_unique_generate_call",
    "num_frames",
    "is_multilingual",
    "prev_sot_token_id",
    "alignment_heads",
    "prompt_condition_type",
    "return_token_timestamps",
]
GENERATION_KEYS = frozenset([*_NEUTRAL, *_UNKNOWN, *_READ, *_WITHOUT_EFFECT])
"""Each key of a generation_config.json that is followed, changes nothing, or is noted with another value than none."""


class GenerationSettings:
    """Reads the settings of a generation config into `decoding`; `left` says what it does not hold: "top_p is 3"."""

    def __init__(self, given: dict[str, Any], *, reads_source: bool) -> None:
        self.decoding = common_pb2.Decoding()
        self.left: list[str] = []
        self._given = given
        self._read_strategy()
        for each in PENALTIES:
            number = self._number(each.name) if each in _FIELDS else None
            if number is not None and each.name.startswith("encoder_") and not reads_source:
                self._leave(each.name)
            elif number is not None:
                setattr(self.decoding.penalties, each.field, number)
        self._read_phrases()
        self._read_decay()
        for name, neutral in _UNKNOWN.items():
            if given.get(name) not in (None, neutral):
                self._leave(name)
        self._check_sums()

    @property
    def searches(self) -> bool:
        """Whether answers are the best of several beams."""
        return self.decoding.WhichOneof("strategy") == "beams"

    def suppress(self, token_ids: tuple[int, ...]) -> bool:
        """Never write these tokens. If they are more than a Decoding holds, return False, and say so in `left`."""
        fits = len(token_ids) <= MAX_TOKENS
        if fits:
            self.decoding.suppressed.ids.extend(token_ids)
            self._check_sums()
        else:
            self.left.append(f"{len(token_ids):,} single tokens of bad_words_ids and suppress_tokens")
        return fits

    def _check_sums(self) -> None:
        """Leave renormalize_logits where it changes what a search adds up: where a rule has changed some scores."""
        strategies = {field.name for field in common_pb2.Decoding.DESCRIPTOR.oneofs_by_name["strategy"].fields}
        ruled = {field.name for field, _ in self.decoding.ListFields()} - strategies - {"num_outputs"}
        ruled |= {name for name in ("min_length", "min_new_tokens") if self._given.get(name)}
        said = any(each.startswith("renormalize_logits") for each in self.left)
        if self._given.get("renormalize_logits") is True and self.searches and ruled and not said:
            self._leave("renormalize_logits")

    def _read_strategy(self) -> None:
        draws = self._given.get("do_sample") is True
        num_beams = self._number("num_beams")
        if num_beams is not None:
            self._read_beams(int(num_beams))
            if draws:
                self._leave("do_sample")
        elif draws:
            self._read_draws()
        num_outputs = self._number("num_return_sequences")
        if num_outputs is None:
            return
        if self.decoding.WhichOneof("strategy") is None or num_outputs > (num_beams or num_outputs):
            self._leave("num_return_sequences")
        else:
            self.decoding.num_outputs = int(num_outputs)

    def _read_beams(self, num_beams: int) -> None:
        beams = self.decoding.beams
        beams.num_beams = num_beams
        penalty = self._number("length_penalty")
        if penalty is not None:
            beams.length_penalty = penalty
        stopping = self._given.get("early_stopping") or False
        if isinstance(stopping, bool | str) and stopping in _EARLY_STOPPING:
            beams.early_stopping = _EARLY_STOPPING[stopping]
        else:
            self._leave("early_stopping")

    def _read_draws(self) -> None:
        sampling = self.decoding.sampling
        sampling.SetInParent()
        if self._given.get("top_k") is None:
            sampling.top_k = _TOP_K
        elif (top_k := self._number("top_k")) is not None:
            sampling.top_k = int(top_k)
        for each in SAMPLING:
            if each in _FIELDS and each.name != "top_k" and (number := self._number(each.name)) is not None:
                setattr(sampling, each.name, number)

    def _read_phrases(self) -> None:
        """Read what is never written, is not written first, or is more or less probable."""
        # A token alone is in Generation.banned, or suppressed.
        phrases = [each for each in self._given.get("bad_words_ids") or [] if _length(each) != 1]
        if len(phrases) <= MAX_PHRASES and all(map(_is_phrase, phrases)):
            for phrase in phrases:
                self.decoding.banned.add().token_ids.ids.extend(phrase)
        else:
            self._leave("bad_words_ids")
        first = self._given.get("begin_suppress_tokens")
        if isinstance(first, list) and first and len(first) <= MAX_TOKENS and all(map(_is_id, first)):
            self.decoding.suppressed_first.ids.extend(first)
        elif first:
            self._leave("begin_suppress_tokens")
        biases = self._given.get("sequence_bias")
        if isinstance(biases, list) and len(biases) <= MAX_PHRASES and all(map(_is_bias, biases)):
            for phrase, number in biases:
                bias = self.decoding.bias.add(bias=number)
                bias.token_ids.ids.extend(phrase)
        elif biases:
            self._leave("sequence_bias")

    def _read_decay(self) -> None:
        decay = self._given.get("exponential_decay_length_penalty")
        if decay is None:
            return
        if _length(decay) == 2 and _is_id(decay[0]) and _is_number(decay[1]) and DECAY_FACTOR.takes(decay[1]):
            self.decoding.length_decay.start, self.decoding.length_decay.factor = decay
        else:
            self._leave("exponential_decay_length_penalty")

    def _number(self, name: str) -> float | int | None:
        """Return a number that changes something, of the type of its field; None if there is none."""
        neutral, least, most = _NEUTRAL[name]
        value = self._given.get(name)
        if value is None or value == neutral:
            return None
        if not _is_number(value) or not least <= value <= most or (name in _WHOLE and value != int(value)):
            self._leave(name)
            return None
        return int(value) if name in _WHOLE else float(value)

    def _leave(self, name: str) -> None:
        self.left.append(f"{name} is {self._given[name]!r:.40}")


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else -1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_phrase(value: object) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= MAX_PHRASE_TOKENS and all(map(_is_id, value))


def _is_bias(value: Any) -> bool:
    return _length(value) == 2 and _is_phrase(value[0]) and _is_number(value[1]) and BIAS.takes(value[1])
