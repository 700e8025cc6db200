"""What recipes of every kind share: the training loop, tokenizers, answers, cards."""
