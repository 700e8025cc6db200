"""From a checkpoint to a server in one command."""
