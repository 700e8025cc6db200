"""`python -m weft_server`: as `weft serve`. It takes signals before it imports what takes long."""

import sys

from weft_server.process.shutdown import take_signals

if __name__ == "__main__" and "--check" not in sys.argv:
    take_signals()

from weft_server.cli.serve import app  # after the signals

if __name__ == "__main__":
    app()
