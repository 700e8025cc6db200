"""How far the outputs and states of a bundle's graphs were from torch, for who looks into a proof that failed."""

import math
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Figures:
    """By what was compared: the largest error so far, and what is allowed of it."""

    rows: dict[str, tuple[float, str]] = field(default_factory=dict)

    def note(self, what: str, error: float, allowed: str) -> None:
        """Keep an error, unless a larger one of the same is known. NaN is the largest."""
        known, _ = self.rows.get(what, (0.0, ""))
        if not (error <= known or math.isnan(known)):
            self.rows[what] = (error, allowed)

    def write(self, path: Path) -> None:
        """Write a line for each, in the order in which they were compared. The last one failed, if one did."""
        lines = [f"{what}: {error:.3g}, allowed {allowed}\n" for what, (error, allowed) in self.rows.items()]
        path.write_text("".join(lines), encoding="utf-8")
