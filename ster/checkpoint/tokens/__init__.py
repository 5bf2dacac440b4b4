"""tokenizer.json, which could be a stranger's program as well: text to ids and back."""
