"""From a checkpoint in float32 to one in 8-bit integers."""
