"""verl as the trainer: an agent loop, a reward manager and a launcher. Only modules that use verl import it."""
