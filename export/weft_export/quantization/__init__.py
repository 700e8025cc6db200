"""From a checkpoint in float32 to one in integers of 8 or 4 bits."""
