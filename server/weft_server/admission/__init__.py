"""What is refused before it costs much: calls of a full model, large messages, floods of refusals."""
