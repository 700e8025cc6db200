"""What a Hugging Face directory says of texts: tokenizers, special tokens, languages, and a chat's template."""
