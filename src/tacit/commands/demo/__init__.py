"""``tacit demo``: the commands a newcomer needs, on real medical data."""

from tacit.commands.demo.command import demo

__all__ = ["demo"]
