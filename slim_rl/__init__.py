"""slim_rl: does a language model learn to ask questions when reinforcement learning makes asking worth it?

Importing this package imports no framework: torch, transformers, trl, slime, verl and openai are loaded by the modules
that need them (``policies.transformers``, ``backends.*``, ``partners.openai_chat``) and nowhere else.
"""

__version__ = "0.1.0"
