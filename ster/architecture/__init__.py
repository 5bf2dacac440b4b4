"""What a decoder is, read from config.json."""
