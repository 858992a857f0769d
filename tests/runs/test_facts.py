"""run.json, read again."""

import pytest

from tacit.errors import InputError
from tacit.runs import Problem, RunFacts
from tacit.tables import Flag, Number, Schema

SCHEMA = Schema((Number("age", 0, 120), Flag("ill")), records=500)


def test_a_run_keeps_its_scaling_and_one_of_an_earlier_version_scaled_to_norm_1():
    facts = RunFacts(Problem(SCHEMA, "ill", 1.0, 1e-5)).to_json()
    assert RunFacts.from_json(facts).problem.schema.scaling == "linear"
    del facts["schema"]["scaling"]
    assert RunFacts.from_json(facts).problem.schema.scaling == "norm"


@pytest.mark.parametrize("name", ["target", "method", "model"])
@pytest.mark.parametrize("value", [-1e308, [], None, {"a": 1}])
def test_what_must_be_text_is_refused_if_it_is_not(name, value):
    facts = RunFacts(Problem(SCHEMA, "ill", 1.0, 1e-5)).to_json() | {name: value}
    with pytest.raises(InputError, match=f"{name} must be text"):
        RunFacts.from_json(facts)
