"""run.json, read again."""

from tacit.runs import Problem, RunFacts
from tacit.tables import Flag, Number, Schema

SCHEMA = Schema((Number("age", 0, 120), Flag("ill")), records=500)


def test_a_run_keeps_its_scaling_and_one_of_an_earlier_version_scaled_to_norm_1():
    facts = RunFacts(Problem(SCHEMA, "ill", 1.0, 1e-5)).to_json()
    assert RunFacts.from_json(facts).problem.schema.scaling == "linear"
    del facts["schema"]["scaling"]
    assert RunFacts.from_json(facts).problem.schema.scaling == "norm"
