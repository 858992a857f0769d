import pytest
import torch

from tacit.errors import InputError
from tacit.ledger import merged_noise_multiplier
from tacit.mechanisms import (
    AdaptiveClip,
    ClipGroups,
    ClipLayers,
    ClipRecords,
    GaussianNoise,
    VectorGroup,
    build_mechanism,
)
from tacit.randomness import Randomness

SHAPES = {"a.weight": torch.Size([30, 20]), "a.bias": torch.Size([20]), "b.weight": torch.Size([200])}
FLAT = VectorGroup(tuple(SHAPES), 1.0)


@pytest.mark.parametrize(
    "clipping",
    [
        ClipRecords(0.7),
        ClipLayers(0.7),
        ClipLayers(0.7, allocation="dimension"),
        ClipGroups([VectorGroup(("a.weight",), 3.0), VectorGroup(("a.bias", "b.weight"), 0.1, scales=(1.0, 5.0))]),
        AdaptiveClip(0.7),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("allocation", ["proportional", "dimension"])
def test_the_multiplier_is_that_of_the_whole_release(clipping, allocation):
    noise = GaussianNoise(multiplier=1.3, allocation=allocation)
    mechanism = build_mechanism(clipping, noise, SHAPES, slack=1e-4, multiplicity=2)
    assert merged_noise_multiplier(mechanism.queries) == pytest.approx(1.3)


def test_the_noise_has_the_recorded_scale_in_every_group():
    groups = [VectorGroup(("a.weight", "a.bias"), 1.0, 2.0), VectorGroup(("b.weight",), 1.0, 0.5, scales=(10.0,))]
    mechanism = build_mechanism(ClipGroups(groups), None, SHAPES, slack=0.0)
    draws = [mechanism.release(mechanism.zeros("cpu"), 4.0, Randomness.seeded(i)) for i in range(300)]
    for name, stddev in (("a.weight", 2.0), ("a.bias", 2.0), ("b.weight", 5.0)):
        values = torch.stack([draw[name] for draw in draws])
        assert float(values.std()) == pytest.approx(stddev / 4, rel=0.02)


def test_only_a_declared_number_divides_the_sum():
    mechanism = build_mechanism(ClipRecords(1.0), GaussianNoise(stddev=1e-12), SHAPES, slack=0.0)
    sums = {name: torch.full(shape, 6.0, dtype=torch.float64) for name, shape in SHAPES.items()}
    released = mechanism.release(sums, 3.0, Randomness())
    assert float(released["b.weight"][0]) == pytest.approx(2.0)


def test_a_large_release_takes_sums_of_any_layout():
    shapes = {"w": torch.Size([400, 300]), "b": torch.Size([7])}
    mechanism = build_mechanism(ClipRecords(1.0), GaussianNoise(stddev=1e-12), shapes, slack=0.0)
    turned = torch.randn(300, 400, dtype=torch.float64).T
    released = mechanism.release({"w": turned, "b": torch.ones(7).double()}, 2.0, Randomness())
    torch.testing.assert_close(released["w"], turned / 2)


def test_a_faulty_record_has_no_share_in_its_group_only():
    mechanism = build_mechanism(ClipLayers(1.0), GaussianNoise(multiplier=1.0), SHAPES, slack=0.0)
    factors = mechanism.factors(torch.tensor([[float("nan"), 1.0, 0.01]]))
    assert factors[0, :2].tolist() == [0, 0]
    assert factors[0, 2] == 1


def test_adaptive_clipping_finds_the_quantile():
    mechanism = build_mechanism(AdaptiveClip(5.0, quantile=0.5), GaussianNoise(multiplier=1.0), SHAPES, slack=0.0)
    norms = torch.linspace(0, 2, 400).double()
    squares = torch.stack([norms.square(), 0 * norms, 0 * norms], dim=1)
    queries = mechanism.queries
    for step in range(200):
        sums = mechanism.zeros("cpu") | mechanism.counts(squares)
        mechanism.release(sums, 400, Randomness.seeded(step))
    assert mechanism.norm == pytest.approx(1.0, abs=0.15)
    assert mechanism.queries == queries  # the ledger does not depend on the data
    assert len(queries) == 2


def test_adaptive_clipping_scales_bound_and_noise_with_the_norm():
    mechanism = build_mechanism(AdaptiveClip(5.0), GaussianNoise(multiplier=1.0), SHAPES, slack=0.0)
    assert float(mechanism.factors(torch.tensor([[100.0, 0.0, 0.0]]))[0, 0]) == pytest.approx(0.5, rel=1e-5)


def test_an_adaptive_norm_that_leaves_the_range_of_numbers_is_said_in_a_line():
    clipping = AdaptiveClip(1.0, learning_rate=50.0)
    for share in (-1000.0, 1000.0, 5.0):
        with pytest.raises(InputError, match="lower its learning_rate"):
            clipping.next_norm(1.0, share)
    assert clipping.next_norm(1.0, 0.5) == 1.0


def test_a_count_too_exact_for_the_budget_is_refused():
    with pytest.raises(InputError, match="count_noise"):
        build_mechanism(AdaptiveClip(1.0, count_noise=0.4), GaussianNoise(multiplier=1.0), SHAPES, slack=0.0)


@pytest.mark.parametrize(
    ("clipping", "noise", "message"),
    [
        (ClipGroups([FLAT]), None, "no noise"),
        (ClipGroups([VectorGroup(tuple(SHAPES), 1.0, 1.0)]), GaussianNoise(multiplier=1.0), "given twice"),
        (ClipGroups([VectorGroup(("a.bias",), 1.0)]), GaussianNoise(multiplier=1.0), "no group holds"),
        (ClipGroups([FLAT, FLAT]), GaussianNoise(multiplier=1.0), "two groups"),
        (ClipGroups([VectorGroup(("c",), 1.0)]), GaussianNoise(multiplier=1.0), "does not train"),
        (ClipLayers(1.0), GaussianNoise(stddev=1.0), "one group"),
    ],
)
def test_parts_that_do_not_fit_are_refused(clipping, noise, message):
    with pytest.raises(InputError, match=message):
        build_mechanism(clipping, noise, SHAPES, slack=0.0)


def test_nothing_to_train_is_refused():
    with pytest.raises(InputError, match="nothing to train"):
        build_mechanism(ClipRecords(1.0), GaussianNoise(multiplier=1.0), {}, slack=0.0)


@pytest.mark.parametrize(
    "arguments", [{}, {"multiplier": 1.0, "stddev": 1.0}, {"multiplier": 0.0}, {"stddev": float("nan")},
                  {"multiplier": 1.0, "allocation": "fair"}]
)  # fmt: skip
def test_bad_noise_is_refused(arguments):
    with pytest.raises(InputError):
        GaussianNoise(**arguments)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (ClipRecords, {"norm": 0.0}),
        (ClipRecords, {"norm": float("inf")}),
        (ClipRecords, {"norm": 1.0, "rule": "hug"}),
        (ClipLayers, {"norm": 1.0, "allocation": "x"}),
        (AdaptiveClip, {"initial": 1.0, "quantile": 1.0}),
        (AdaptiveClip, {"initial": 1.0, "learning_rate": 0.0}),
        (AdaptiveClip, {"initial": -1.0}),
    ],
)
def test_bad_clipping_is_refused(kind, arguments):
    with pytest.raises(InputError):
        kind(**arguments)
