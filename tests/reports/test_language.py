"""The German page: every sentence of the page is in its one file, numbers have commas, and names stay."""

import dataclasses
import re

import pytest

from tacit.reports import make_report, render
from tacit.reports.content import Banner, Commands, Picture, Section
from tacit.reports.language import _SENTENCE_END, _sentence, _write_numbers, translate
from tacit.reports.pictures import Series
from tests.reports.runs import make_run, write_evaluation, write_facts, write_regression

NAMES = {Section: {"name"}, Picture: {"name"}, Banner: {"tone"}, Series: {"style", "shape"}, Commands: {"lines"}}
DECLARED = {"outcome", "well, ill", "age, weight, height, pulse, sleep, work", "sgld", "clip", "few features",
            "few records for this epsilon", "Epsilon", "Delta"}  # fmt: skip


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)
    elif dataclasses.is_dataclass(value):
        kept = NAMES.get(type(value), set())
        yield from (t for f in dataclasses.fields(value) if f.name not in kept for t in texts(getattr(value, f.name)))


def untranslated(report):
    shown = report.title, report.subtitle, report.headline.promise, report.picture, report.banners, report.sections
    parts = {part for text in texts(shown) for part in _SENTENCE_END.split(text)}
    words = {part for part in parts if re.search("[a-z]{3}", part) and not re.fullmatch("[0-9a-f]{64}", part)}
    return {part for part in words - DECLARED if _sentence(part, "de") is None}


@pytest.fixture(params=["classes", "numbers", "bare", "seeded"])
def run(request, tmp_path):
    prediction, labels = make_run(tmp_path, seeded=request.param == "seeded")
    if request.param == "classes":
        write_facts(tmp_path)
        write_evaluation(tmp_path, prediction, labels)
    elif request.param == "numbers":
        write_facts(tmp_path, task="regression", classes=[])
        write_regression(tmp_path)
    return tmp_path


def test_every_sentence_is_translated(run):
    assert untranslated(make_report(run)) == set()


def test_a_german_page_says_so_and_names_stay(run):
    page = render(translate(make_report(run), "de"), "html")
    assert '<html lang="de">' in page
    assert "Datenschutzbericht: patients" in page
    assert "Skip to the report" not in page


def test_the_command_writes_it(run, tacit):
    code, out, _ = tacit("report", run, "--language", "de", "--format", "md")
    assert code == 0
    assert "# Datenschutzbericht: patients" in out
    code, _, err = tacit("report", run, "--language", "xx")
    assert (code, err.count("\n")) == (2, 1)


def test_numbers_have_commas_and_files_stay():
    assert _write_numbers("5,000.5 in run.json, 55.3 %, 0.1.0, 1e-05") == "5.000,5 in run.json, 55,3 %, 0.1.0, 1e-05"
