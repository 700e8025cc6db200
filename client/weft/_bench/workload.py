"""What a load asks for, as the options say it, and which model and method that means."""

from dataclasses import dataclass
from pathlib import Path

from weft._bench.inputs import Kind, kind_of
from weft._bench.lengths import Lengths
from weft._bench.method import TASKS, WRITES_TEXT, Method, reads
from weft._model import Model, ModelState
from weft._types import Task
from weft.exceptions import InvalidRequest

# Their models are asked something about each input.
_ASKED = frozenset({Task.ANSWER, Task.EXTRACT})
# They are asked about texts alone: random tokens would be no question, and have no mask.
TAKE_NO_IDS = frozenset({Task.EXTRACT, Task.FILL_MASK})


@dataclass(frozen=True, slots=True)
class Workload:
    """Without `paths`, token ids are drawn; without `output_tokens`, the model decides how long an answer is.

    `streams` is None for a stream wherever text is produced. `forced` answers have exactly the length that was drawn;
    others may end before. `question` is asked about each picture, or each text.
    """

    model: str = ""
    version: int | None = None
    paths: tuple[Path, ...] = ()
    input_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    forced: bool = True
    streams: bool | None = None
    seed: int = 0
    question: str = ""

    def find(self, models: tuple[Model, ...]) -> Model:
        """Return the model that is meant: the named one, or the only one that takes such inputs.

        Raises:
            InvalidRequest: There is none, or more than one, or it is not ready.
        """
        ready = {(m.name, m.version): m for m in models if m.state is ModelState.READY}
        if self.model:
            versions = [m for m in models if m.name == self.model and self.version in (None, m.version)]
            if not versions:
                named = f"{self.model} {self.version or ''}".rstrip()
                known = ", ".join(sorted({m.name for m in models})) or "none"
                raise InvalidRequest(f"--model: the server has no {named}; it has {known}")
            found = [m for m in versions if (m.name, m.version) in ready]
            if not found:
                raise InvalidRequest(f"--model: {self.model} is {versions[-1].state}")
            return max(found, key=lambda m: m.version)

        if self.version is not None:
            raise InvalidRequest("--model-version needs --model")

        latest = {m.name: m for _, m in sorted(ready.items())}
        fitting = [m for m in latest.values() if self._fits(m)]
        if not fitting:
            raise InvalidRequest("no model of the server fits; `weft models` lists them")
        if len(fitting) > 1:
            raise InvalidRequest(f"several models fit; --model names one: {', '.join(m.name for m in fitting)}")
        return fitting[0]

    def _fits(self, model: Model) -> bool:
        if model.task not in TASKS:
            return False
        given = kind_of(self.paths) if self.paths else Kind.TEXTS
        writes = model.task in WRITES_TEXT
        if (model.task in _ASKED) is not bool(self.question):
            return False
        return reads(model.task) is given and (writes or not (self.output_tokens or self.streams))

    def method(self, model: Model) -> Method:
        """Return what is called; refuses options that mean nothing to the model."""
        if model.task not in TASKS:
            raise InvalidRequest(f"--model: this client is too old to know what {model.name} does")
        if model.task in _ASKED and not self.question:
            raise InvalidRequest(f"--question: {model.name} answers questions about its inputs; give one")
        if self.question and model.task not in _ASKED:
            raise InvalidRequest(f"--question: {model.name} answers none")
        if writes := model.task in WRITES_TEXT:
            return Method(model.task, streams=self.streams is not False)
        for name, given in (("--stream", self.streams), ("--output-tokens", self.output_tokens)):
            if given:
                raise InvalidRequest(f"{name}: {model.name} writes no text")
        return Method(model.task, streams=writes)
