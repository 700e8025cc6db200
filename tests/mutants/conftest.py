"""The tool is a script, whose files find each other by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
