"""The starting point of a local run: a tiny Qwen3 with its own tokenizer, taught by supervision to play the game at all.

tokenizer.py   a small byte-level BPE with ChatML control tokens
batches.py     batches of demonstrations, and the trainer of adapters
train.py       the games of scripted players (the game's own `curriculum`) as tokens and masks, and the supervised training
"""
