"""Text to token ids and back, by a tokenizer.json in a confined process."""
