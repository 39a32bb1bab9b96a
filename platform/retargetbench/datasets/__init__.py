"""Datasets: the interface, folders on disk, importers and the shipped capsule bodies."""
