"""What studies share: scores of runs, names of arms, verdicts."""
