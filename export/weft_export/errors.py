"""What may go wrong for reasons outside our code. Each message is one clear sentence for a user."""


class ExportError(Exception):
    """An export cannot be done; nothing was written."""

    def __init__(self, sentence: str) -> None:
        # It may quote a library, which says it in several lines.
        super().__init__(" ".join(sentence.split()))


class CheckpointError(ExportError):
    """A checkpoint is missing something, contradicts itself, or is not of a family we know."""


class QualityError(ExportError):
    """Rounding costs a model more of its quality than an export lets pass."""


class ParityError(ExportError):
    """ONNX Runtime and torch disagree about a model."""
