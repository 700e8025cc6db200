"""The verbs: what each takes and gives, and how it is sent and read."""
