"""Warm start of local runs: a tiny Qwen3 and its tokenizer, trained by supervision to play the game.

tokenizer.py   small byte-level BPE with ChatML control tokens
train.py       demonstrations by scripted players (the game's `curriculum`), and the supervised training
batches.py     batches of demonstrations, and the trainer of adapters
optimizer.py   Muon with AdamW
"""
