"""TABLES: from a file and a declared schema to features and settings. Nothing is learned from a record. No torch."""

from tacit.tables.columns import Category, Column, Flag, Ignored, Number
from tacit.tables.drafts import draft_schema, public_schema, schema_from_values
from tacit.tables.encoding import Encoded, encode, encode_inputs, feature_names, target_scale
from tacit.tables.files import Table, read_table
from tacit.tables.recipes import recipe
from tacit.tables.schema import Scaling, Schema, Task, read_schema, schema_text
from tacit.tables.searches import Candidate, Search
from tacit.tables.settings import Facts, Method, Recipe, Setting, default_delta

__all__ = [
    "Candidate",
    "Category",
    "Column",
    "Encoded",
    "Facts",
    "Flag",
    "Ignored",
    "Method",
    "Number",
    "Recipe",
    "Scaling",
    "Schema",
    "Search",
    "Setting",
    "Table",
    "Task",
    "default_delta",
    "draft_schema",
    "encode",
    "encode_inputs",
    "feature_names",
    "public_schema",
    "read_schema",
    "read_table",
    "recipe",
    "schema_from_values",
    "schema_text",
    "target_scale",
]
