"""Pictures as data and as inline SVG, drawn by us: light, themable, and with words for whoever cannot see them."""

from tacit.reports.pictures.axes import Axis
from tacit.reports.pictures.chart import Chart, Series, draw_chart, draw_key, room_above
from tacit.reports.pictures.forest import Effect, Forest, draw_forest
from tacit.reports.pictures.people import People, draw_people, draw_person_key

__all__ = [
    "Axis",
    "Chart",
    "Effect",
    "Forest",
    "People",
    "Series",
    "draw_chart",
    "draw_forest",
    "draw_key",
    "draw_people",
    "draw_person_key",
    "room_above",
]
