"""Hospitals that never send their records: private federated averaging of a small classifier, simulated by Flower.

    pip install 'tacit[flower]' 'flwr[simulation]'
    python examples/flower_clients.py --rounds 30 --out runs/flower

Whole clients are protected: the server draws them in secret, clips what each has learned, and adds noise. With as few
clients as here that costs a lot; put your own app, with thousands, in their place.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import tacit
from tacit.integrations.flower import PrivateFedAvg, clipping_mod

CLIENTS, CLIP, DELTA = 200, 0.5, 1e-3


def patients(client: int | None) -> tuple[Tensor, Tensor]:
    """A client's: some rows of a public table, drawn by its number; without a number, the rows that nobody has."""
    table = load_breast_cancer()
    x = torch.tensor(table.data, dtype=torch.float32)
    x, y = (x - x.mean(0)) / x.std(0), torch.tensor(table.target)  # a public table: so are its means
    if client is None:
        return x[400:], y[400:]
    rows = torch.randint(0, 400, (40,), generator=torch.Generator().manual_seed(client))
    return x[rows], y[rows]


client, server = ClientApp(mods=[clipping_mod(CLIP)]), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    model = nn.Linear(30, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = patients(int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict())}), reply_to=message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--out", type=Path, default=Path("runs/flower"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sampling = tacit.PoissonSampling.of(batch_size=options.clients // 5, dataset_size=options.clients)
    noise = tacit.calibrate_noise(options.epsilon, DELTA, probability=sampling.probability, steps=options.rounds)
    plan = tacit.PrivacyPlan(
        sampling, tacit.ClipRecords(CLIP), tacit.GaussianNoise(multiplier=noise.noise_multiplier),
        options.out / "ledger.jsonl", budget=tacit.Budget(options.epsilon, DELTA), unit=tacit.Users(),
    )  # fmt: skip

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        model, strategy = nn.Linear(30, 2), PrivateFedAvg(plan)
        nn.init.zeros_(model.weight)
        start: Any = ArrayRecord(model.state_dict())
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=options.rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        x, y = patients(None)
        print(f"accuracy on public records {100 * (model(x).argmax(1) == y).float().mean():.1f} %")
        print(
            f"epsilon {strategy.epsilon(DELTA):.3f} at delta {DELTA:g} for whole clients; the ledger is {plan.ledger}"
        )

    run_simulation(server, client, options.clients, backend_config={"client_resources": {"num_cpus": 1}})


if __name__ == "__main__":
    main()
