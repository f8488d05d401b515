"""Dialogues: token boundaries of a chat template, the turn loop, the record, measures, rewards and the worker."""
