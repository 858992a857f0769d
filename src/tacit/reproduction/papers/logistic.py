"""Private logistic regression on a table, by the default settings: for paper B's table 1 and paper M's figure 3.

Settings follow from public numbers by the rule of `tacit train`, never from a look at accuracy.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import tacit
from tacit.data import TableData
from tacit.inference import InferenceMethod
from tacit.posteriors import Posterior
from tacit.tables import Facts, Method, Recipe, recipe

DELTA = 1e-5


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1].float(), reduction="none")


@dataclass(frozen=True)
class Table:
    """Records of norm 1 in two classes, and where runs on them are kept; ``steps`` shortens a quick run."""

    name: str
    data: TableData
    folder: Callable[[str], Path]
    steps: int | None = None

    @property
    def size(self) -> int:
        return len(self.data.train_labels)

    @property
    def features(self) -> int:
        return self.data.train_inputs.shape[1]

    def model(self) -> nn.Linear:
        model = nn.Linear(self.features, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def settings(self, epsilon: float, method: Method = "sgld") -> Recipe:
        facts = Facts(self.size, self.features, self.features, 1, "classification", method, "linear", epsilon, DELTA)
        return self.shortened(recipe(facts))

    def shortened(self, settings: Recipe) -> Recipe:
        return replace(settings, steps=self.steps or settings.steps)

    def plan(self, settings: Recipe, name: str, noise: tacit.GaussianNoise | None) -> tacit.TrainingPlan:
        sampling = tacit.PoissonSampling(settings.probability, settings.probability * self.size)
        ledger, clipping = self.folder(name) / "ledger.jsonl", tacit.ClipRecords(settings.clip_norm)
        return tacit.TrainingPlan(
            sampling, clipping, noise, settings.steps, ledger, dataset=self.name, physical_batch=4096
        )

    def train(
        self, method: InferenceMethod[Any], settings: Recipe, name: str, *, forced: bool = False,
        evidence: tacit.EvidencePlan | None = None,
    ) -> tacit.training.Run:  # fmt: skip
        """At the recipe's noise, or at the noise that a sampler's temperature forces. Draws are of the last half."""
        noise = None if forced else tacit.GaussianNoise(multiplier=settings.noise_multiplier)
        plan = self.plan(settings, name, noise)
        every = settings.keep_every if plan.steps >= settings.draws * settings.keep_every else 1
        last = min(settings.draws, plan.steps)
        data = (self.data.train_inputs, self.data.train_labels)
        return tacit.train(method, data, plan, keep_last=last, keep_every=every, evidence=evidence)

    def sgld(self, settings: Recipe, model: nn.Module) -> tacit.SGLD:
        """Of a tempered posterior: the step is the one that learns, the temperature what the noise makes of it."""
        prior, step = tacit.GaussianPrior(settings.prior_stddev), settings.learning_rate / self.size
        return tacit.SGLD(model, losses, prior, step, dataset_size=self.size, temperature=None)

    def variational(self, settings: Recipe, model: nn.Module) -> tacit.VariationalInference:
        """Mean-field Gaussian; its iterates are averaged, for nothing."""
        return tacit.VariationalInference(
            model, losses, dataset_size=self.size, prior=tacit.GaussianPrior(settings.prior_stddev),
            descent=tacit.inference.AdamDescent(settings.learning_rate), average=0.99,
        )  # fmt: skip

    def accuracy(self, model: nn.Module, posterior: Posterior, inputs: Tensor | None = None) -> float:
        """In percent, on the last test rows if fewer inputs than those are given."""
        inputs = self.data.test_inputs if inputs is None else inputs
        found = tacit.predict(model, posterior, inputs, link="sigmoid")
        return 100 * float((found.classes == self.data.test_labels[-len(inputs) :]).float().mean())

    def open_accuracy(self) -> float:
        """In percent, without privacy."""
        model = LogisticRegression(C=10.0, max_iter=500).fit(self.data.train_inputs, self.data.train_labels)
        return 100 * float(model.score(self.data.test_inputs, self.data.test_labels))
