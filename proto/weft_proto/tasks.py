"""What is true of every model of a task, whatever its family: one row a task, which exporter and server both read."""

from dataclasses import dataclass

from weft_proto.v1 import bundle_pb2, common_pb2

_ENCODER = bundle_pb2.GRAPH_ROLE_ENCODER
_DECODER = bundle_pb2.GRAPH_ROLE_DECODER
_MIXED = bundle_pb2.GRAPH_ROLE_MIXED
_CLASSIFIER = bundle_pb2.GRAPH_ROLE_CLASSIFIER
_TAGGER = bundle_pb2.GRAPH_ROLE_TAGGER
_EMBEDDER = bundle_pb2.GRAPH_ROLE_EMBEDDER
_IMAGE_EMBEDDER = bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER
_MASKED_LM = bundle_pb2.GRAPH_ROLE_MASKED_LM
_CTC = bundle_pb2.GRAPH_ROLE_CTC
_SCORE = bundle_pb2.GRAPH_ROLE_SCORE
_IMAGE_ENCODER = bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER
_BIDIRECTIONAL = bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL


@dataclass(frozen=True)
class Task:
    """One row: the graphs of a bundle for the task, what a model takes, and what it gives.

    Attributes:
        name: in error sentences, metrics and logs.
        needs: the roles of the graphs that a bundle must have.
        may_have: the roles of others that it can have. Any bundle can have EXPLAIN.
        takes_image: its input is a picture; of one that matches it can be a text too.
        takes_audio: its input is a recording.
        takes_prefix: a text may have to begin with one of text.prefixes.
        takes_question: it takes a text besides, which the decoder reads behind its start token.
        takes_context: its input is two texts: a question, and a context in which the answers stand.
    """

    name: str
    needs: frozenset[bundle_pb2.GraphRole.ValueType]
    may_have: frozenset[bundle_pb2.GraphRole.ValueType] = frozenset()
    takes_image: bool = False
    takes_audio: bool = False
    takes_prefix: bool = False
    takes_question: bool = False
    takes_context: bool = False

    @property
    def takes_text(self) -> bool:
        """Its input is a text, or can be."""
        return self.matches or not (self.takes_image or self.takes_audio)

    @property
    def reads_text(self) -> bool:
        """Its input is a text, or has one."""
        return self.takes_text or self.takes_question

    @property
    def writes_text(self) -> bool:
        """Its answer is produced token by token; else it is one label, one for each token, or a vector."""
        return _DECODER in self.needs

    @property
    def takes_prompt(self) -> bool:
        """Its answer goes on where the input ends: it has no start token, and shares the cache with the input."""
        return self.writes_text and _ENCODER not in self.needs

    @property
    def has_start(self) -> bool:
        """Its answer begins with a start token."""
        return self.writes_text and not self.takes_prompt

    @property
    def takes_language(self) -> bool:
        """A request may name the languages of its source and of its answer."""
        return self.has_start and self.takes_text

    @property
    def labels_tokens(self) -> bool:
        """Its answer is made of labels for each token."""
        return _TAGGER in self.needs

    @property
    def takes_pair(self) -> bool:
        """Its input is two texts, or can be."""
        return self.takes_context or (_CLASSIFIER in self.needs and not self.takes_image)

    @property
    def fills_masks(self) -> bool:
        """Its answer is a token for each mask of a text."""
        return _MASKED_LM in self.needs

    @property
    def labels_frames(self) -> bool:
        """Its answer is text that is read off a label for each moment of a recording."""
        return _CTC in self.needs

    @property
    def takes_prompt_name(self) -> bool:
        """A request may name a prompt, which stands before its text."""
        return self.may_cut and not self.labels_tokens

    @property
    def may_cut(self) -> bool:
        """A text that is too long may be cut: it is read as a whole, and what is cut off is not asked for."""
        others = self.writes_text or self.takes_image or self.takes_audio
        return not (others or self.takes_context or self.fills_masks)

    @property
    def embeds(self) -> bool:
        """Its answer is a vector, or made of vectors."""
        return bool(self.needs & {_EMBEDDER, _IMAGE_EMBEDDER})

    @property
    def matches(self) -> bool:
        """It embeds pictures and texts, and holds one to the other."""
        return self.needs >= {_EMBEDDER, _IMAGE_EMBEDDER}

    @property
    def has_labels(self) -> bool:
        """Its answer is of labels."""
        return not (self.writes_text or self.embeds or self.fills_masks or self.labels_frames)

    @property
    def has_text(self) -> bool:
        """It takes a text, or gives one."""
        return self.writes_text or self.takes_text


TASKS = {
    common_pb2.TASK_TRANSLATE: Task(
        "translate", frozenset({_ENCODER, _DECODER}), may_have=frozenset({_SCORE}), takes_prefix=True
    ),
    common_pb2.TASK_CAPTION: Task(
        "caption", frozenset({_ENCODER, _DECODER}), may_have=frozenset({_SCORE}), takes_image=True
    ),
    common_pb2.TASK_GENERATE: Task(
        "generate", frozenset({_DECODER}), may_have=frozenset({_MIXED, _SCORE, _IMAGE_ENCODER, _BIDIRECTIONAL})
    ),
    common_pb2.TASK_CLASSIFY_TEXT: Task("classify_text", frozenset({_CLASSIFIER})),
    common_pb2.TASK_CLASSIFY_IMAGE: Task("classify_image", frozenset({_CLASSIFIER}), takes_image=True),
    common_pb2.TASK_ANSWER: Task("answer", frozenset({_ENCODER, _DECODER}), takes_image=True, takes_question=True),
    common_pb2.TASK_TRANSCRIBE: Task(
        "transcribe", frozenset({_ENCODER, _DECODER}), may_have=frozenset({_SCORE}), takes_audio=True
    ),
    common_pb2.TASK_TRANSCRIBE_CTC: Task("transcribe_ctc", frozenset({_CTC}), takes_audio=True),
    common_pb2.TASK_TAG: Task("tag", frozenset({_TAGGER})),
    common_pb2.TASK_EXTRACT: Task("extract", frozenset({_TAGGER}), takes_context=True),
    common_pb2.TASK_FILL_MASK: Task("fill_mask", frozenset({_MASKED_LM})),
    common_pb2.TASK_EMBED_TEXT: Task("embed_text", frozenset({_EMBEDDER})),
    common_pb2.TASK_EMBED_IMAGE: Task("embed_image", frozenset({_IMAGE_EMBEDDER}), takes_image=True),
    common_pb2.TASK_MATCH: Task("match", frozenset({_EMBEDDER, _IMAGE_EMBEDDER}), takes_image=True),
}
