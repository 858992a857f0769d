"""Real jobs of 1, 2 and 4 processes: replicas and shards of one model (gloo on this machine)."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reliability.processes import environment
from tacit.ledger import read_ledger

JOB = Path(__file__).parent / "job.py"


def started(size, folder, what, **changed):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fixed = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **changed}
    fixed.setdefault("TACIT_RANK_PATIENCE", "1200")  # a loaded machine may pause a rank
    command = [sys.executable, "-W", "ignore", str(JOB), str(folder), what]
    return [
        subprocess.Popen(command, env=environment(**fixed, RANK=str(rank)), stderr=subprocess.PIPE, text=True)
        for rank in range(size)
    ]


def run(size, folder, what, **changed):
    """Start the ranks ourselves: torchrun would end the others before they say what they saw."""
    ranks = started(size, folder, what, **changed)
    said = [rank.communicate()[1] for rank in ranks]
    found = {}
    for path in sorted(folder.glob(f"{what}-{size}-*.json")):
        found[int(path.stem.rpartition("-")[2])] = json.loads(path.read_text())
    return found, [rank.returncode for rank in ranks], said


def good(size, folder, what, **changed):
    found, codes, said = run(size, folder, what, **changed)
    assert codes == [0] * size, said
    assert len(found) == size
    return found


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    return {size: good(size, folder, "sums") for size in (1, 2, 4)}


def test_sums_do_not_depend_on_the_number_of_ranks_nor_on_shards(sums):
    alone = torch.tensor(sums[1][0]["replicas"]["values"], dtype=torch.float64)
    for size, found in sums.items():
        for rank in range(size):
            for name in ("replicas", "shards", "shards by use"):
                values = torch.tensor(found[rank][name]["values"], dtype=torch.float64)
                assert float((values - alone).norm() / alone.norm()) < 1e-6


def test_deterministic_sums_have_the_same_bits_for_any_number_of_ranks(sums):
    for name in ("replicas deterministic", "shards deterministic", "shards by use deterministic"):
        assert len({found[rank][name]["bits"] for size, found in sums.items() for rank in range(size)}) == 1


def test_ledgers_have_the_same_bytes(sums):
    assert len({one["ledger"] for found in sums.values() for one in found[0].values()}) == 1


def test_gradients_of_shards_are_shards(sums):
    for found in sums.values():
        assert found[0]["shards"]["gradients"] == ["DTensor"]
        assert found[0]["replicas"]["gradients"] == ["Tensor"]


def test_a_faulty_record_contributes_nothing_and_stalls_nobody(sums):
    alone = torch.tensor(sums[1][0]["shards with faults"]["values"], dtype=torch.float64)
    clean = torch.tensor(sums[1][0]["shards"]["values"], dtype=torch.float64)
    assert not torch.equal(alone, clean)
    for size in (2, 4):
        for name in ("shards with faults", "shards by use with faults"):
            values = torch.tensor(sums[size][0][name]["values"], dtype=torch.float64)
            assert float((values - alone).norm() / alone.norm()) < 1e-6


@pytest.mark.parametrize("size", [2, 4])
def test_noise_is_fresh_on_every_rank_and_what_the_ledger_says(tmp_path, size):
    found = good(size, tmp_path, "noise")
    for name in ("replicas", "shards"):
        draws = torch.tensor(found[0][name], dtype=torch.float64)
        assert draws.tolist() == torch.tensor(found[size - 1][name], dtype=torch.float64).tolist()  # one release
        flat = draws.reshape(-1)
        assert abs(float(flat.std()) / 2.0 - 1) < 6 / (2 * flat.numel()) ** 0.5
        assert len(torch.unique(flat)) > 0.99 * flat.numel()  # float32 meets itself now and then; no key stream does
        halves = draws[:, : draws.shape[1] // size * size].view(len(draws), size, -1)
        for rank in range(1, size):
            pair = torch.stack([halves[:, 0].reshape(-1), halves[:, rank].reshape(-1)])
            assert abs(float(torch.corrcoef(pair)[0, 1])) < 6 / pair.shape[1] ** 0.5
        steps = torch.corrcoef(draws)
        assert float((steps - torch.eye(len(steps))).abs().max()) < 6 / draws.shape[1] ** 0.5
    ledger = read_ledger(tmp_path / f"noise-shards-{size}.jsonl")
    assert {query.noise_stddev for charge in ledger.charges for query in charge.event.queries} == {2.0}


def test_the_python_of_the_page_runs_as_it_is_printed(tmp_path):
    for found in good(2, tmp_path, "page").values():
        assert found == {"train": 4, "shards": 4, "ray": 100}


@pytest.mark.parametrize(("small", "whole"), [("0", 0.7), (str(2**24), 1.01)])
def test_a_rank_holds_its_part_of_parameters_and_gradients(tmp_path, small, whole):
    for rank in good(2, tmp_path, "memory", SMALL=small).values():
        assert rank["entries"] <= 0.55 * rank["total"]
        assert 0 < rank["most"] <= whole  # of the parameters: two of three blocks, where one passes its gradient on
        assert rank["left"] == 0  # bytes: what was gathered is let go


@pytest.mark.parametrize("small", ["0", str(2**24)])
def test_frozen_layers_half_precision_meshes_and_rows_of_their_own(tmp_path, sums, small):
    found = good(2, tmp_path, "ways", SMALL=small)
    values = {name: torch.tensor(one, dtype=torch.float64) for name, one in found[0].items()}
    plain = torch.tensor(sums[1][0]["replicas"]["values"], dtype=torch.float64)

    def distance(one, other):
        return float((one - other).norm() / other.norm())

    assert distance(values["frozen shards"], values["frozen"]) < 1e-6
    assert distance(values["frozen"], plain) > 1e-4
    assert distance(values["own rows"], plain) < 1e-6
    assert distance(values["half precision shards"], plain) < 1e-2
    assert distance(values["mesh shards"], plain) < 1e-3
    for name, one in found[1].items():
        assert found[0][name] == one  # also where a shard has replicas, whose noise is one


@pytest.mark.parametrize("small", ["0", str(2**24)])
def test_a_rank_that_fails_in_the_middle_of_a_pass_is_heard_of(tmp_path, small):
    found, codes, said = run(2, tmp_path, "failing", SMALL=small)
    assert codes == [0, 0], said
    assert found[1]["error"] == "MemoryError"
    assert found[0]["said"] == "rank 1 stopped: this rank has no luck"


def test_what_shards_cannot_do_is_refused_in_one_line(tmp_path):
    said = good(1, tmp_path, "refusals")[0]
    assert set(said) == {"evidence", "strict", "trusted"}
    assert not list(tmp_path.glob("*.jsonl"))


def test_a_killed_rank_ends_the_job_and_another_number_of_ranks_goes_on(tmp_path):
    found, codes, _ = run(2, tmp_path, "resumed", KILL="9")
    assert codes[1] == -9
    assert found[0]["error"] == "RankLostError"
    last = json.loads((tmp_path / "last").read_text())
    assert last["step"] == 5
    charged = read_ledger(tmp_path / "ledger.jsonl").steps
    assert charged >= 6  # five that were released, and the one that was begun
    for size in (1, 4):  # each takes up the same checkpoint: steps that were lost are paid for again
        after = good(size, tmp_path, "resumed")
        assert {one["from"] for one in after.values()} == {5}
        assert {one["begun"] for one in after.values()} == {last["bits"]}
        assert {one["released"] for one in after.values()} == {3}
        assert read_ledger(tmp_path / "ledger.jsonl").steps == charged + 3
        charged += 3


@pytest.mark.slow
@pytest.mark.parametrize("where", [{}, {"INSIDE": "a pass"}, {"INSIDE": "a pass, between two gathers", "SMALL": "0"}])
def test_a_silent_rank_ends_the_job(tmp_path, where):
    first, second = started(2, tmp_path, "resumed", KILL=str(int(signal.SIGSTOP)), TACIT_RANK_PATIENCE="20", **where)
    first.communicate()
    second.kill()
    second.communicate()
    assert json.loads((tmp_path / "resumed-2-0.json").read_text())["error"] == "RankLostError"
    assert read_ledger(tmp_path / "ledger.jsonl").steps >= 6
