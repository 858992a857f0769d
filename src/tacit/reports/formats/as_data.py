"""A report as data: the same content, with numbers as numbers where the page has pictures."""

import json
from dataclasses import asdict
from typing import Any

from tacit.reports.content import Block, Commands, Paragraph, Picture, Points, Report, Section, Table, Terms
from tacit.storage.json_files import finite


def to_json(report: Report) -> str:
    """Plain JSON; a number that is not finite becomes null, which every parser reads."""
    return json.dumps(finite(to_data(report)), indent=2) + "\n"


def to_data(report: Report) -> dict[str, Any]:
    said = report.headline
    return {
        "made_by": f"tacit report {report.version}",
        "format": 1,
        "title": report.title,
        "subtitle": report.subtitle,
        "private": report.private,
        "banners": [asdict(banner) for banner in report.banners],
        "headline": {
            "promise": said.promise,
            "guarantee": None if said.guarantee is None else said.guarantee.to_json(),
            "attack_probability": said.attack,
            "attack_probability_by": said.by,
        },
        "facts": report.facts,
        "guarantees": [result.to_json() for result in report.guarantees],
        "picture": None if report.picture is None else _block(report.picture),
        "sections": [_section(section) for section in report.sections],
    }


def _section(section: Section) -> dict[str, Any]:
    found = {"name": section.name, "title": section.title, "private": section.private}
    return {**found, "blocks": [_block(block) for block in section.blocks]}


def _block(block: Block) -> dict[str, Any]:
    match block:
        case Paragraph(text):
            return {"paragraph": text}
        case Points(title, items):
            return {"points": title, "items": list(items)}
        case Terms(rows):
            return {"terms": dict(rows)}
        case Table(caption, columns, rows):
            return {"table": caption, "columns": list(columns), "rows": [list(row) for row in rows]}
        case Commands(lines):
            return {"commands": list(lines)}
        case Picture(name, title, description, drawing):
            return {"picture": name, "title": title, "description": description, "data": asdict(drawing)}
