"""Lightning's Trainer with private gradients: a strategy that draws the samples and does the backward pass.

With automatic optimisation Lightning asks the strategy for a training step and then for its backward pass: the step is
nothing here, because no loss of a private record may be seen, and the backward pass is the engine's. With manual
optimisation ``training_step`` gets the sample and hands it to ``self.manual_backward``.
"""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.integrations.passes import Passes
from tacit.losses import UserLosses
from tacit.training import PrivacyPlan, PrivateGradient, Sample

try:
    from lightning.pytorch.strategies import SingleDeviceStrategy
except ImportError as error:
    raise ImportError("the private strategy needs Lightning: pip install 'tacit[lightning]'") from error


class PrivateStrategy(SingleDeviceStrategy):
    """Private training in Lightning's loop; module, optimizers, schedules and callbacks stay the user's.

    Args:
        dataset: private, tensors or a map-style data set.
        plan: a :class:`tacit.PrivacyPlan`.
        losses: ``losses(module, batch) -> Tensor[records]``, one loss per record.
        device: where to train.
        loading: as for :meth:`tacit.PrivateGradient.samples`: collate_fn, workers, augment, views, user_ids.

    Example::

        strategy = PrivateStrategy(data, plan, losses)
        trainer = lightning.Trainer(strategy=strategy, max_steps=1000)
        trainer.fit(module, strategy.samples)
        strategy.private.epsilon(1e-6)
    """

    def __init__(
        self,
        dataset: Any,
        plan: PrivacyPlan,
        losses: UserLosses,
        *,
        device: torch.device | str = "cpu",
        **loading: Any,
    ) -> None:
        super().__init__(device)
        self.samples = Passes(plan.sampling, self._draw)
        self._dataset, self._plan, self._user_losses, self._loading = dataset, plan, losses, loading
        self._private: PrivateGradient | None = None
        self._sample: Sample | None = None
        self._resumed: Path | None = None

    @property
    def private(self) -> PrivateGradient:
        """The engine, there once training has begun."""
        if self._private is None:
            raise InputError("there is no private gradient before fit() has begun")
        return self._private

    # What Lightning asks for

    def batch_to_device(self, batch: Any, *others: Any, **more: Any) -> Any:
        return batch if isinstance(batch, Sample) else super().batch_to_device(batch, *others, **more)

    def training_step(self, sample: Any, *others: Any) -> Any:
        if not isinstance(sample, Sample):
            raise InputError("a private strategy trains on its own samples: trainer.fit(module, strategy.samples)")
        if not self.lightning_module.automatic_optimization:
            return super().training_step(sample, *others)
        self._sample = sample
        return torch.zeros((), device=self.root_device, requires_grad=True)  # Lightning wants a loss to follow

    def backward(self, closure_loss: Any, *others: Any, **more: Any) -> Tensor:
        """Of the sample of this step, which manual optimisation gives in place of a loss."""
        sample = self._sample if self.lightning_module.automatic_optimization else closure_loss
        if not isinstance(sample, Sample):
            raise InputError("manual_backward takes the sample that training_step got: self.manual_backward(sample)")
        self._sample = None
        with self.precision_plugin.train_step_context():
            self.private.backward(sample)
        return torch.zeros((), device=self.root_device)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, *others: Any, **more: Any) -> None:
        if self._private is not None:
            _beside(filepath).parent.mkdir(parents=True, exist_ok=True)
            self._private.save_checkpoint(_beside(filepath), {}, step=self._trainer.global_step)
        super().save_checkpoint(checkpoint, filepath, *others, **more)

    def load_checkpoint(self, checkpoint_path: Any, *others: Any, **more: Any) -> dict[str, Any]:
        self._resumed = _beside(checkpoint_path)
        found: dict[str, Any] = super().load_checkpoint(checkpoint_path, *others, **more)
        return found

    def remove_checkpoint(self, filepath: Any) -> None:
        super().remove_checkpoint(filepath)
        _beside(filepath).unlink(missing_ok=True)

    def teardown(self) -> None:
        self.samples.close()
        if self._private is not None:
            self._private.close()
        super().teardown()

    # What it gets

    @property
    def _trainer(self) -> Any:
        return self.lightning_module.trainer

    def _draw(self) -> Generator[Sample, None, None]:
        trainer = self._trainer
        if trainer.accumulate_grad_batches != 1:
            raise InputError(
                "accumulate_grad_batches would take several samples for a step; let the plan draw larger ones"
            )
        steps = trainer.max_steps if trainer.max_steps > 0 else (trainer.max_epochs or 0) * len(self.samples)
        if steps <= 0:
            raise InputError("the number of steps is part of the plan: give the trainer max_steps or max_epochs")
        self._private = PrivateGradient(self.lightning_module, self._user_losses, self._plan)
        first = 0
        if self._resumed is not None:
            first, _ = self._private.load_checkpoint(self._resumed)
            if first != trainer.global_step:
                raise InputError(f"{self._resumed} of step {trainer.global_step} is not there: the run cannot go on")
        return self._private.samples(self._dataset, steps, first=first, device=self.root_device, **self._loading)


def _beside(checkpoint: Any) -> Path:
    """Our part of a checkpoint: which step it is of, and the ledger's head."""
    return Path(checkpoint).with_suffix(".tacit")
