"""Prompts as people have them: files, tables, chats and lists become a prompt set."""
