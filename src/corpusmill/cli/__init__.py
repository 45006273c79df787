"""The command line: job files and options in, exit codes and words out. No policy of its own lives here."""

from corpusmill.cli.main import main

__all__ = ["main"]
