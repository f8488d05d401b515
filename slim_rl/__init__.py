"""slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?

Importing this package imports no framework: torch, transformers, trl, slime, verl and openai are imported only by the modules
that need them, which are in ``policies``, ``backends``, ``warmstart``, ``adapters`` and ``partners``.
"""

__version__ = "0.1.0"
