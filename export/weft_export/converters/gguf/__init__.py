"""GGUF files: a language model in one file, with its tokenizer and its weights, which are often rounded in blocks."""
