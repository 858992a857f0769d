"""QUERIES: counts, means, quantiles and the like of a private table, each with the noise's own interval, charged."""

from tacit.queries.answers import Answer
from tacit.queries.ask import Answers, answer, ask
from tacit.queries.asked import Asked
from tacit.queries.words import Query, parse_query

__all__ = ["Answer", "Answers", "Asked", "Query", "answer", "ask", "parse_query"]
