"""Models while the server serves: they come, go, sleep and wake, by callers or by the repository."""
