"""Partners of any game: a chat model behind an OpenAI-compatible endpoint."""
