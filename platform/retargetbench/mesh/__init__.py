"""Exact geometry of triangle meshes: closing cut surfaces, winding numbers, distances, rays."""
