"""`python -m weft_server`: as `weft serve`. It takes signals before it imports what takes long."""

import sys

from weft_server.process.shutdown import take_signals

if __name__ == "__main__" and not any(argument.startswith("--check") for argument in sys.argv):
    take_signals()

try:
    from weft_server.cli.serve import app  # after the signals
except ModuleNotFoundError as error:
    if (error.name or "").startswith("weft"):  # one of our own is never missing by the user's choice
        raise
    sys.exit(f"weft serve: {error.name} is not installed: pip install 'weft-serving[server]' (or [gpu])")

if __name__ == "__main__":
    app()
