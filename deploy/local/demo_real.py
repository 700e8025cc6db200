"""A real language model, from its Hugging Face directory to an answer (`make demo-real`).

It is what `weft export`, `weft serve` and `weft generate --chat` do, one after the other.
"""

import subprocess
import sys
from pathlib import Path

from demo import BUILD, ServerFailedError, served

WEFT = [sys.executable, "-m", "weft_command"]
MAX_TOKENS = "1024"
# It holds 135 million weights, and a busy machine is slow to warm them.
READY_WITHIN_S = 600.0
QUESTION = "What is the capital of France? Answer in one sentence."


def main(directory: Path) -> int:
    """Export the directory unless that was done, serve it, and ask it a question; return the exit status."""
    repository = directory.parent / "models"
    bundle = repository / directory.name / "1"
    if not (bundle / "bundle.json").exists():
        export = [*WEFT, "export", str(directory), str(bundle), "--max-tokens", MAX_TOKENS]
        if subprocess.run(export, check=False).returncode:
            return 1
    try:
        print(f"Starting a server for {repository} ...\n", flush=True)
        with served(repository, BUILD / "real.log", READY_WITHIN_S) as target:
            print(f'$ weft generate --chat "{QUESTION}"', flush=True)
            ask = [*WEFT, "generate", "--chat", QUESTION, "--target", target]
            return subprocess.run(ask, check=False).returncode
    except ServerFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
