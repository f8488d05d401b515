"""Dialogues: chat-template token boundaries, the turn loop, the record."""
