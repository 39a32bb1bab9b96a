"""Frozen suites: YAML files that name dataset, split, methods and metrics."""
