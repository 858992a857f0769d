"""``tacit train``: what was asked for, the run, and what came of it."""

from tacit.commands.train.command import train

__all__ = ["train"]
