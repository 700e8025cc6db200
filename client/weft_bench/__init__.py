"""`weft bench`: a load for any running server, and what it made of it."""
