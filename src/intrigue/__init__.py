"""intrigue makes reinforcement-learning agents curious."""
