"""Names of ports that bundle.proto fixes and that more than one room needs."""

# Before the name of a state's port, in a MIXED graph, when it is the prompt's.
PROMPT = "prompt."
# Whether a run computes more than the best candidates; a graph without it computes all in each run.
READS_ALL = "reads_all"
