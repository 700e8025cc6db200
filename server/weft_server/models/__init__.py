"""The models that are served, what each of them has, and which one a request means."""
