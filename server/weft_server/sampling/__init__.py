"""Which token comes next: pure functions of numpy arrays."""
