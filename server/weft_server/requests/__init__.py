"""A request's way through a model, from its message to its answer: a file for each kind of request."""
