"""The grammar of English and Spanish: what it can say, and what is never trained on."""
