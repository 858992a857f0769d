"""Reproduce a paper: what a script of ``papers/`` measured, beside what the paper says and what we expect."""

from tacit.reproduction.document import document, reasons
from tacit.reproduction.expectation import Expectation, Item, Verdict, find_papers, read_items
from tacit.reproduction.work import Result, Work

__all__ = ["Expectation", "Item", "Result", "Verdict", "Work", "document", "find_papers", "read_items", "reasons"]
