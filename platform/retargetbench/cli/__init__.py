"""The command line, ``bench``."""

from __future__ import annotations

from retargetbench.cli.app import main

__all__ = ["main"]
