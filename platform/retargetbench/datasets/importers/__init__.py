"""Importers: each turns files of one layout into a folder dataset."""
