"""Turns of many dialogues decoded together in this process: `slim_rl.policies.transformers` samples with it.

    2.1 times as many tokens a second as transformers' continuous batching with 64 dialogues, and 3.0 times with 128

on one core of a CPU, with data/warmstart, logprobs on both sides (python benchmarks/bench_batching.py). A row's keys and values are read
where they lie; continuous batching gathers them from its blocks at each step and in each layer. And a turn is drawn from its dialogue's
own random stream, so that it does not depend on who else is in the batch; continuous batching has one stream for all.
"""
