"""``tacit account``: what one run cost, or all runs of a registry."""

from tacit.commands.account.command import account

__all__ = ["account"]
