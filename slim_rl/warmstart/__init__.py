"""The starting point of a local run: a tiny Qwen3 with its own tokenizer, taught by supervision to play the game at all.

tokenizer.py   a small byte-level BPE with ChatML control tokens
asker.py       the scripted player it learns from
demonstrations.py  that player's games as tokens and masks
train.py       the supervised training itself, `slim-rl warmstart`
"""
