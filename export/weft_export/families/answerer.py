"""Answers about pictures with the picture as a memory: the captioner, fed a question before its answer."""

from weft_export.families.captioner import Captioner


class Answerer(Captioner):
    """The question stands behind the start token, and is read by the decoder as the beginning of its own text.

    Each of its tokens, and each of the answer's, attends to those before it and to all patches.
    """

    # ScoreService takes no question.
    scores = False
