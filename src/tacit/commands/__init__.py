"""The command line, one file per command."""

from tacit.commands.app import main

__all__ = ["main"]
