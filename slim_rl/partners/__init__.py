"""Partners of any game: a chat model behind an OpenAI-compatible endpoint, and a recorded one. A game's own are in its folder."""
