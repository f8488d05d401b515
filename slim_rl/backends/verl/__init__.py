"""verl as the trainer: an agent loop, a reward manager and a launcher. verl is imported only where it is used."""
