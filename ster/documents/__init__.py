"""The files that people write and read: prompt sets and activation artifacts.

Documents know nothing of models, devices or the command line.
"""
