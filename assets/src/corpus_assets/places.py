"""Where this project keeps its tables."""

import os
from pathlib import Path


def folder() -> Path:
    """Give the folder below which everything lies: CORPUS_FOLDER, or `corpus-output` in the working directory."""
    return Path(os.environ.get("CORPUS_FOLDER", "corpus-output")).absolute()
