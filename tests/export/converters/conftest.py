"""Lets the files of this folder find each other, and keeps transformers to its arithmetic."""

import os
import sys
from pathlib import Path

# Before transformers is imported: it would look for a hub.
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
