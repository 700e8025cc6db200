"""Which languages a request means, and what a model is given for them."""
