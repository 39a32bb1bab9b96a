"""Plan, predict, score and report: programs with files between them."""
