"""A conversation about a photograph, and where each word of the answer looked (`make demo-sight`).

It is what `weft serve` and `weft generate --chat --picture --explain` do, one after the other.
"""

import os
import subprocess
import sys

from demo import BUILD, ROOT, ServerFailedError, served

WEFT = [sys.executable, "-m", "weft_command"]
MODEL = "scenes-chat"
CROWD = 5
"""Hyphens in the name of a photograph of three things."""
LOOK, COUNT = "what do you see?", "how many shapes are there?"


def main() -> int:
    """Serve the model that sees, and ask about each of its example photographs; return the exit status."""
    photographs = sorted((ROOT / "export" / "checkpoints" / MODEL / "examples").glob("*.png"))
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        print(f"Starting a server for {MODEL} ...\n", flush=True)
        with served(ROOT / "build" / "sight", BUILD / "sight.log") as target:
            for photograph in photographs:
                # It is named by what it shows. A crowd is told less well than it is counted.
                question = LOOK if photograph.name.count("-") < CROWD else COUNT
                heat = BUILD / f"sight-{photograph.name}"
                shown, drawn = (os.path.relpath(path) for path in (photograph, heat))
                print(f'$ weft generate --chat "{question}" --picture {shown} --explain {drawn}', flush=True)
                asked = ["generate", "--chat", question, "--picture", shown, "--explain", drawn, "--target", target]
                if status := subprocess.run([*WEFT, *asked], check=False).returncode:
                    return status
                print(flush=True)
    except ServerFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
