"""The embedded dataset: parametric bodies, authored actions with contacts, and ground truth solved for every body."""
