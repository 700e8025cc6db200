"""The recipes that train the demo checkpoints."""
