"""Language models: text is read, tokenised by a tokenizer made from it, and a transformer learns it."""
