"""The most memory that this process has had at once."""

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process since it began, in bytes.

    It counts what lay in RAM: memory of its own, and the pages of mapped files that it touched, such as a checkpoint's
    weights. The system can take those pages back; they count all the same. Other processes do not count.
    """
    # Linux hands the process's own figure on when it starts a program; getrusage then has the starter's peak too.
    if _STATUS.is_file():
        return int(_STATUS.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
