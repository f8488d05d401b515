"""verl as the trainer: an agent loop, a reward manager and a launcher. verl itself is imported only where it is used."""
