"""What a report says: numbers from the ledger, warnings where they belong, nothing private unless asked for."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import tacit.reports as tacit_reports
from tacit.accountants import best_attack, guarantees
from tacit.commands.app import run as tacit
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    LedgerFile,
    LedgerHeader,
    PoissonSample,
    PosteriorSample,
    ShuffledStep,
    read_ledger,
)
from tacit.reports import make_report, render
from tacit.reports.content import Picture
from tacit.reports.pictures import Axis, People
from tests.reports.runs import DELTA, make_run, write_evaluation, write_facts, write_regression

FORMATS = ("html", "json", "md")


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """As `tacit train` leaves it: secure, with evidence, declared facts and an evaluation."""
    folder = tmp_path_factory.mktemp("table") / "run"
    prediction, labels = make_run(folder, evidence=True)
    write_facts(folder)
    write_evaluation(folder, prediction, labels)
    return folder


@pytest.fixture(scope="module")
def seeded_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeded") / "run"
    make_run(folder, seeded=True)
    return folder


@pytest.fixture(scope="module")
def private_report(table_run):
    return make_report(table_run, bayesian=True)


@pytest.fixture
def copied(table_run, tmp_path):
    return shutil.copytree(table_run, tmp_path / "run")


def ledger_of(folder, *charges, **header):
    with LedgerFile(folder / "ledger.jsonl", LedgerHeader(dataset="mine", dataset_size=1000, **header)) as file:
        if charges:
            file.plan(sum(charge.steps for charge in charges))
            file.reserve(charges)
    return folder


def data_of(run, **options):
    return json.loads(render(make_report(run, **options), "json"))


def banner_titles(report):
    return [banner.title for banner in report.banners]


def pictures(report):
    return {b.name: b for section in report.sections for b in section.blocks if isinstance(b, Picture)}


def warnings_of(report):
    found = [section for section in report.sections if section.name == "warnings"]
    return " ".join(found[0].blocks[0].items) if found else ""


# The numbers


def test_the_headline_is_the_smallest_bound_of_the_ledger(table_run):
    report, ledger = make_report(table_run), read_ledger(table_run)
    bounds = [result for result in guarantees(ledger, DELTA) if result.is_bound]
    assert report.headline.guarantee == min(bounds, key=lambda bound: bound.epsilon)
    assert report.headline.attack == best_attack(ledger)
    assert list(report.guarantees) == guarantees(ledger, DELTA)


def test_run_json_cannot_change_a_number(copied):
    before = data_of(copied)
    write_facts(copied, epsilon=0.001, delta=1e-9, n_records=10**9, unit="user", dataset="other")
    after = data_of(copied)
    for part in ("headline", "guarantees", "facts", "picture"):
        assert after[part] == before[part]
    for word in ("1000000000", "user", "other", "1e-09"):
        assert word in warnings_of(make_report(copied))


def test_a_ledger_alone_is_enough(table_run, tmp_path):
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        shutil.copy(table_run / name, tmp_path)
    for form in FORMATS:
        assert render(make_report(tmp_path), form)
    assert data_of(tmp_path)["headline"] == data_of(table_run)["headline"]
    assert "declared public was given" in render(make_report(tmp_path), "md")


def test_a_ledger_file_may_be_named_instead_of_its_folder(table_run):
    assert render(make_report(table_run / "ledger.jsonl"), "html") == render(make_report(table_run), "html")


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_run_gives_the_same_bytes(table_run, form):
    assert render(make_report(table_run), form) == render(make_report(table_run), form)


def test_delta_is_the_ledgers_unless_asked_for(table_run, event, tmp_path):
    assert make_report(table_run).headline.guarantee.delta == DELTA
    assert make_report(table_run, delta=1e-6).headline.guarantee.delta == 1e-6
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader(dataset_size=2_000_000)) as file:
        file.reserve([Charge(event, 3)])
    assert make_report(tmp_path).headline.guarantee.delta == 1e-8  # 1e-5 would not be below one in two million


@pytest.mark.parametrize(("attack", "more"), [(0.5, 0), (0.5000001, 1), (0.51, 1), (0.5623, 7), (1.0, 50)])
def test_people_are_rounded_up(attack, more):
    assert People.of(attack).more == more


def test_a_chart_stays_on_its_axes():
    axis = Axis("x", 0.0, 0.37)
    assert all(0 <= tick <= 0.37 + 1e-12 for tick in axis.ticks())
    assert len(axis.ticks()) >= 3
    assert len(Axis("share", 0.08, 0.9, log=True).ticks()) >= 3
    assert (axis.place(-1.0), axis.place(0.37), axis.place(9.0)) == (0.0, 1.0, 1.0)


# Warnings and refusals


def test_a_secure_run_has_no_banner_and_a_seeded_one_has(table_run, seeded_run):
    assert banner_titles(make_report(table_run)) == []
    seeded = make_report(seeded_run)
    assert "Seeded run: do not release" in banner_titles(seeded)
    assert "were secret" in seeded.headline.promise
    for form in FORMATS:
        assert "do not release" in render(seeded, form)


def test_a_derived_schema_is_said_by_the_schema(copied):
    write_facts(copied, schema={"derived_from_private_data": True})
    assert "The schema was taken from the private data" in banner_titles(make_report(copied))


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("the schema was derived from the private data", True),
        ("bounds, levels or the number of records were read off the private data; epsilon does not cover that", True),
        ("classes: taken from data", True),
        ("bounds, levels, classes and the number of records are taken as public (declared)", False),
    ],
)
def test_a_derived_schema_is_said_by_the_ledger_too(event, tmp_path, sentence, said):
    run = ledger_of(tmp_path, Charge(event, 5), assumptions=(sentence,))
    assert ("The schema was taken from the private data" in banner_titles(make_report(run))) == said


def test_an_approximation_is_never_a_bound(tmp_path):
    run = ledger_of(tmp_path, Charge(PosteriorSample(1.0, 0.5, exact=False), 1))
    report = make_report(run)
    assert not report.headline.guarantee.is_bound
    assert "An approximation" in banner_titles(report)
    assert "not a bound" in report.headline.promise
    assert "(not a bound)" in render(report, "html")


def test_what_no_accountant_can_read_has_no_number(tmp_path):
    step = ShuffledStep(10, (GaussianSumQuery(1.0, 1.0),))
    report = make_report(ledger_of(tmp_path, Charge(step, 10), neighbours="replace_one"))
    assert (report.headline.guarantee, report.headline.attack, report.picture) == (None, None, None)
    assert "No guarantee" in banner_titles(report)
    assert report.headline.promise.startswith("No privacy guarantee")
    for form in FORMATS:
        assert "cannot read shuffled" in render(report, form)


def test_an_adaptive_run_is_stated_at_its_budget_and_not_drawn(tmp_path, event):
    run = ledger_of(tmp_path, Charge(event, 50), schedule="adaptive", epsilon=3.0, delta=1e-5)
    report = make_report(run)
    assert report.headline.guarantee.accountant == "rdp"
    assert report.headline.guarantee.epsilon == pytest.approx(3.0)
    assert "from epsilon and delta" in report.headline.by
    assert not pictures(report)
    assert "adaptive schedule" in render(report, "md")


def test_an_empty_ledger_reveals_nothing(tmp_path):
    report = make_report(ledger_of(tmp_path))
    assert (report.headline.guarantee.epsilon, report.headline.attack) == (0.0, 0.5)
    assert report.picture.drawing.more == 0
    assert render(report, "html")


def test_more_than_the_budget_and_a_torn_end_are_told(tmp_path, event):
    run = ledger_of(tmp_path, Charge(event, 500), epsilon=0.1, delta=1e-5)
    assert "declares a budget of epsilon 0.1" in warnings_of(make_report(run))
    with (run / "ledger.jsonl").open("ab") as file:
        file.write(b'{"record":"res')
    assert "unfinished line" in warnings_of(make_report(run))


def test_many_kinds_of_steps_are_drawn_and_summed_up(tmp_path):
    kinds = [Charge(PoissonSample(0.05, (GaussianSumQuery(1.0, 8 + i / 50),)), 1) for i in range(70)]
    report = make_report(ledger_of(tmp_path, *kinds))
    assert set(pictures(report)) == {"epsilon-delta", "trade-off", "steps"}
    assert "58 more kinds of steps" in render(report, "md")


# Private evidence (failure-modes F16)


@pytest.mark.parametrize("form", FORMATS)
def test_evidence_leaves_no_trace_in_a_report_that_was_not_asked_for_it(copied, form):
    beside = render(make_report(copied), form)
    for path in copied.glob("evidence.*"):
        path.unlink()
    assert beside == render(make_report(copied), form)
    assert "ayesian" not in beside


def test_private_parts_are_marked_and_apart(table_run, private_report):
    report = private_report
    assert report.private
    assert banner_titles(report)[0] == "Not for publication"
    private = [section for section in report.sections if section.private]
    assert [section.title for section in private] == ["Not for publication: probes"]
    assert report.sections[-1] is private[0]
    assert "percentiles-probes" in pictures(report)
    assert report.headline == make_report(table_run).headline


@pytest.mark.slow
def test_members_have_a_part_of_their_own(tmp_path):
    make_run(tmp_path, evidence=True, members=True)
    found = make_report(tmp_path, bayesian=True)
    assert [section.name for section in found.sections[-2:]] == ["typical-probes", "typical-members"]
    assert {"percentiles-probes", "percentiles-members"} <= set(pictures(found))


def test_a_private_report_is_its_owners_alone(copied, capsys):
    assert tacit(["report", str(copied), "--bayesian"]) == 0
    assert (copied / "report-private.html").stat().st_mode & 0o777 == 0o600
    assert "not for publication" in capsys.readouterr().out
    assert not (copied / "report.html").exists()


# Predictions on public data


def test_predictions_are_described(table_run):
    found, measured = pictures(make_report(table_run)), json.loads((table_run / "evaluation.json").read_text())
    assert {"reliability", "uncertainty", "selective"} <= set(found)
    at_80 = measured["selective"]["accuracy"][measured["selective"]["kept"].index(0.8)]
    assert f"{100 * at_80:.1f} % of the rest are right" in found["selective"].description
    assert f"instead of {100 * measured['accuracy']:.1f} % of all" in found["selective"].description
    assert "nobody can compute them again" in render(make_report(table_run), "md")


def test_a_rare_class_stands_beside_the_accuracy(table_run):
    text = render(make_report(table_run), "md")
    for words in ("always saying the most frequent", "Found of “ill” (sensitivity)", "75.0 %", "87.5 %", "AUC, 0.5 is"):
        assert words in text, words
    assert "Brier score (summed over classes, 0 to 2)" in text


def test_a_gap_that_was_not_measured_is_not_zero(copied):
    value = json.loads((copied / "evaluation.json").read_text())
    value["reliability"]["count"] = [min(24.0, count) for count in value["reliability"]["count"]]
    (copied / "evaluation.json").write_text(json.dumps(value | {"mce": 0.0}))
    assert "not measured (no bin has 25 records)" in render(make_report(copied), "md")


def test_what_a_guess_and_a_group_presume_is_said(table_run):
    text = render(make_report(table_run), "md")
    for words in ("if both were equally likely to them before", "at even odds beforehand", "times this delta"):
        assert words in text, words


def test_intervals_are_described(copied):
    write_regression(copied)
    assert "it does in 92.5 %" in pictures(make_report(copied))["coverage"].description


def test_settings_and_warnings_are_passed_on(table_run):
    text = render(make_report(table_run), "md")
    for words in ("few features", "few records for this epsilon", "12.5", "outcome", "pulse"):
        assert words in text


def test_the_page_says_how_to_check_it(table_run):
    report = make_report(table_run)
    for form in FORMATS:
        text = render(report, form)
        assert "tacit ledger verify RUN" in text
        assert report.facts["ledger_head"] in text


# Hostile names

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></svg><iframe src='http://evil.example'>",
    "{{ 7*7 }}{% include 'x' %}",
    "![x](http://evil.example/x.png) [y](javascript:alert(1))",
    "a|b\n\n# head\n<!-- -->",
    "\u202egnp.exe\u0000\u2028",
)
TAGS = (
    "html head meta title style body a header p span h1 h2 h3 bdi main aside strong section div dl dt dd figure svg "
    "desc g circle path rect text ul li figcaption nav table caption thead tbody tr th td pre code footer"
)


class Page(HTMLParser):
    """All tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def hostile_run(tmp_path):
    folder = tmp_path / "run"
    name = " ".join(HOSTILE)
    make_run(folder, seeded=True, dataset=name, assumptions=HOSTILE)
    write_facts(folder, dataset=name + "!", target=HOSTILE[1], classes=list(HOSTILE), features=list(HOSTILE),
                method=HOSTILE[0], model=HOSTILE[2], task=HOSTILE[3], warnings=list(HOSTILE),
                settings=[{"name": text, "value": text, "why": text} for text in HOSTILE])  # fmt: skip
    write_regression(folder, data=HOSTILE[0])
    return folder


def test_no_name_can_inject_into_the_page(hostile_run):
    page = Page(render(make_report(hostile_run), "html"))
    assert {tag for tag, _ in page.tags} <= set(TAGS.split())
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset")}
        assert attributes.get("href", "#").startswith("#")
    text = " ".join(page.text)
    assert "<script>alert(1)</script>" in text
    assert "{{ 7*7 }}" in text
    assert not re.search("[\u202e\u0000\u2028]", text)


def test_no_name_can_inject_into_the_text(hostile_run):
    first, _, text = render(make_report(hostile_run), "md").partition("\n")
    assert first.startswith("<!-- tacit report")
    assert "<" not in text
    assert "://" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert not re.search("[\u202e\u0000\u2028]", text)
    assert all(line.count("|") == 0 for line in text.splitlines() if not line.startswith("|") and "\\|" not in line)


def test_data_keeps_names_as_they_are(hostile_run):
    assert data_of(hostile_run)["facts"]["dataset"] == " ".join(HOSTILE)


# The page as a document


@pytest.fixture(params=[False, True], ids=["public", "private"])
def page(request, table_run, private_report):
    return Page(render(private_report if request.param else make_report(table_run), "html"))


def test_the_page_forbids_itself_everything_but_its_own_style(table_run):
    text = render(make_report(table_run), "html")
    style = re.search("<style>(.*?)</style>", text, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = re.search('Content-Security-Policy" content="(.*?)"', text).group(1).replace("&#39;", "'")
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "unsafe" not in policy
    assert "http://" not in text.replace("http-equiv", "")
    assert "https://" not in text
    assert "@import" not in style
    assert "url(" not in style


def test_every_picture_has_a_name_and_a_description(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    drawings = [svg for svg in page.all("svg") if svg.get("aria-hidden") != "true"]
    assert len(drawings) >= 7
    for svg in drawings:
        assert svg["role"] == "img"
        assert svg["aria-labelledby"] in ids
        assert svg["aria-describedby"] in ids


def test_tables_have_captions_and_scopes(page):
    assert len(page.all("table")) == len(page.all("caption")) >= 3
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    assert all("tabindex" in region for region in page.all("div") if region.get("role") == "region")


def test_headings_and_landmarks_are_in_order(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(len(page.all(tag)) == 1 for tag in ("header", "main", "nav", "footer"))
    assert page.all("html") == [{"lang": "en"}]
    anchors = {a["href"][1:] for a in page.all("a")}
    assert anchors <= {attributes.get("id") for _, attributes in page.tags}


def test_all_formats_have_the_same_sections(table_run):
    report = make_report(table_run)
    titles = [section.title for section in report.sections]
    assert [section["title"] for section in data_of(table_run)["sections"]] == titles
    assert re.findall("^## (.*)$", render(report, "md"), re.M) == titles
    assert re.findall('-heading">(.*?)</h2>', render(report, "html")) == titles


# The command


def test_the_command_writes_a_page_and_may_write_it_again(copied, capsys):
    for _ in range(2):
        assert tacit(["report", str(copied)]) == 0
        assert capsys.readouterr().out == f"wrote {copied}/report.html\n"
    assert (copied / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("form", ["json", "md"])
def test_other_formats_are_printed_or_written(copied, capsys, tmp_path, form):
    assert tacit(["report", str(copied), "--format", form]) == 0
    printed = capsys.readouterr().out
    assert tacit(["report", str(copied), "--format", form, "--out", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine").read_text() == printed == render(make_report(copied), form)


def bad_file(name, text):
    return lambda folder: (folder / name).write_text(text)


def bad_fact(**changes):
    return lambda folder: write_facts(folder, **changes)


def bad_score(**changes):
    return lambda folder: write_regression(folder, **changes)


def bad_class(**changes):
    def write(folder):
        value = json.loads((folder / "evaluation.json").read_text())
        (folder / "evaluation.json").write_text(json.dumps({**value, **changes}))

    return write


def remove_evidence(folder):
    for path in folder.glob("evidence.*"):
        path.unlink()


def nothing(folder):
    pass


BAD = [
    (nothing, ("nowhere",), "no ledger"),
    (nothing, ("run", "--delta", "0"), "delta"),
    (nothing, ("run", "--delta", "0.01"), "1/300"),
    (nothing, ("run", "--delta", "nan"), "delta"),
    (nothing, ("run", "--format", "pdf"), "format"),
    (nothing, ("run", "--out", "nowhere/report.html"), "does not exist"),
    (nothing, ("run", "--out", "run"), "not an ordinary file"),
    (nothing, ("run", "--out", "run/ledger.jsonl"), "not a report"),
    (nothing, ("run", "--format", "json", "--out", "run/run.json"), "not a report"),
    (nothing, ("run", "--out", "run/evidence.probes.safetensors"), "not a report"),
    (remove_evidence, ("run", "--bayesian"), "no evidence"),
    (bad_file("run.json", "{"), ("run",), "not JSON"),
    (bad_file("run.json", "[" * 100_000), ("run",), "not JSON"),
    (bad_file("run.json", "[]"), ("run",), "must be a JSON object"),
    (bad_file("run.json", '{"format": 2}'), ("run",), "reads format 1"),
    (bad_file("run.json", "\ud83d".encode("utf-16-le", "surrogatepass").decode("latin-1")), ("run",), "not JSON"),
    (bad_fact(target=7), ("run",), "target must be text"),
    (bad_fact(features="age"), ("run",), "features must be a list"),
    (bad_fact(features=[{}]), ("run",), "features must be a list of names"),
    (bad_fact(n_records=-1), ("run",), "n_records must be a whole number"),
    (bad_fact(epsilon="one"), ("run",), "epsilon must be a finite number"),
    (bad_fact(effective_temperature=float("nan")), ("run",), "effective_temperature must be a finite number"),
    (bad_fact(delta=10**400), ("run",), "delta must be a finite number"),
    (bad_fact(settings=["x"]), ("run",), "settings must be a JSON object"),
    (bad_fact(schema={"derived_from_private_data": "no"}), ("run",), "derived_from_private_data must be true or false"),
    (bad_file("evaluation.json", "nothing"), ("run",), "not JSON"),
    (bad_score(records=0), ("run",), "records"),
    (bad_score(coverage={"level": [0.5], "held": []}), ("run",), "of one length"),
    (bad_score(coverage={"level": [0.5], "held": [1.5]}), ("run",), "between 0 and 1"),
    (bad_score(coverage={"level": [0.5], "held": [None]}), ("run",), "of one length"),
    (bad_class(accuracy=None), ("run",), "accuracy is missing"),
    (bad_class(accuracy=float("inf")), ("run",), "accuracy must be a finite number"),
    (bad_class(accuracy=1.5), ("run",), "between 0 and 1"),
    (bad_class(reliability={"edges": [0, 1], "confidence": []}), ("run",), "reliability needs rising edges"),
    (bad_class(entropy={"edges": [1, 0], "right": [1], "wrong": [1]}), ("run",), "entropy needs rising edges"),
    (bad_class(entropy={"edges": [0, 1], "right": [-1], "wrong": [1]}), ("run",), "below 0"),
    (bad_class(entropy={"edges": [0, 1], "right": ["x"], "wrong": [1]}), ("run",), "right must be a list of numbers"),
]


@pytest.mark.parametrize(
    ("spoil", "arguments", "words"), BAD, ids=[f"{i}: {words}" for i, (_, _, words) in enumerate(BAD)]
)
def test_bad_input_is_one_line_and_exit_code_2(copied, tmp_path, monkeypatch, capsys, spoil, arguments, words):
    spoil(copied)
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    monkeypatch.chdir(tmp_path)
    code = tacit(["report", *arguments])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("tacit: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_a_link_is_not_followed(copied, tmp_path):
    (tmp_path / "precious").write_text("tacit report")
    (copied / "report.html").symlink_to(tmp_path / "precious")
    assert tacit(["report", str(copied)]) == 2
    assert (tmp_path / "precious").read_text() == "tacit report"


def test_no_torch_is_needed_for_a_report():
    for path in Path(tacit_reports.__file__).parent.rglob("*.py"):
        assert not re.search(
            r"^\s*(from|import) (torch|tacit\.(training|inference|posteriors|evaluation))", path.read_text(), re.M
        )
