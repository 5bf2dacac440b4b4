"""The files that people write and read: prompts, pairs, artifacts and answers.

Documents know nothing of models, devices or the command line.
"""
