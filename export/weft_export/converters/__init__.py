"""Checkpoints of others: Hugging Face directories become checkpoints of our families."""
