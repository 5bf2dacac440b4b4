"""From ``--model`` to things in memory: files, config, weights, tokenizer, template."""
