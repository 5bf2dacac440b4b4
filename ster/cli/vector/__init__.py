"""``ster vector``: a file for each of its commands."""
