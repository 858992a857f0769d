"""QUERIES: counts, means, quantiles and the like of a private table, each with the noise's own interval, charged."""

from tacit.errors import former_names
from tacit.queries.answers import Answer
from tacit.queries.ask import Answers, answer, ask
from tacit.queries.parsing import Query, parse_query
from tacit.queries.request import QueryRequest

__all__ = ["Answer", "Answers", "Query", "QueryRequest", "answer", "ask", "parse_query"]

__getattr__ = former_names(__name__, {"Asked": "QueryRequest"})
