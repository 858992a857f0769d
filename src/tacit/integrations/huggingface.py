"""Hugging Face's Trainer with private gradients; everything else of it (schedules, callbacks, LoRA) stays the user's.

The trainer's loop asks for batches and for a backward pass. Here a batch is a private sample, and the backward pass the
engine's; no loss of a private record is computed for a log, a count or a progress bar.
"""

import copy
import math
import os
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.accountants import Budget, calibrate_noise
from tacit.errors import InputError
from tacit.integrations.passes import Passes, steps_a_pass
from tacit.ledger import Ledger
from tacit.losses import UserLosses
from tacit.mechanisms import ClipRecords, GaussianNoise
from tacit.sampling import PoissonSampling, SamplingPolicy
from tacit.training import DataSource, PrivacyPlan, PrivateGradient, Sample

try:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import TrainOutput, get_last_checkpoint
except ImportError as error:
    raise ImportError("the private trainer needs Hugging Face's: pip install 'tacit[huggingface]'") from error

_CHECKPOINT = "tacit.safetensors"
_OF_RECORDS = ("loss", "train_loss", "num_input_tokens_seen", "total_flos")  # would be made of private records


def private_plan(
    args: TrainingArguments,
    *,
    epsilon: float,
    delta: float,
    records: int,
    ledger: str | os.PathLike[str],
    clip_norm: float = 1.0,
    room: int = 0,
    **others: Any,
) -> PrivacyPlan:
    """The plan that costs (epsilon, delta) for the steps and the batch size of the training arguments.

    Args:
        records: how many there are, as a declared, public number.
        room: for so many steps more. A crash loses those since the last checkpoint and those charged ahead, which are
            paid for again; without room the budget then stops the run early.
        others: further fields of the plan.

    A sample has ``per_device_train_batch_size * gradient_accumulation_steps`` records on average. Where it is
    accumulated it is computed ``per_device_train_batch_size`` records at a time.
    """
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
    sampling = PoissonSampling.of(batch_size=batch, dataset_size=records)
    steps = steps_of(args, sampling) + room
    found = calibrate_noise(epsilon, delta, probability=sampling.probability, steps=steps)
    noise, budget = GaussianNoise(multiplier=found.noise_multiplier), Budget(epsilon, delta)
    return PrivacyPlan(sampling, ClipRecords(clip_norm), noise, ledger, budget=budget, dataset_size=records, **others)


def steps_of(args: TrainingArguments, sampling: SamplingPolicy) -> int:
    """How many steps the arguments ask for: as they say, or by the number of passes."""
    return int(args.max_steps) if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_a_pass(sampling))


def record_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The model's own loss of a batch of one record."""
    loss: Tensor = model(**batch).loss
    return loss.reshape(1)


class PrivateTrainer(Trainer):
    """``transformers.Trainer`` whose gradients are private.

    Args:
        plan: a :class:`tacit.PrivacyPlan`; :func:`private_plan` makes one from the training arguments.
        losses: one loss per record; by default the loss that the model gives for each record alone.
        other arguments: as for the trainer. A data collator is called for each record by itself.

    What is logged is public: learning rate, the norm of the released gradient and the epsilon so far, not the loss.
    Evaluation runs on ``eval_dataset``, which must be public, and is the trainer's own. Checkpoints hold what a run
    needs to go on, ``train(resume_from_checkpoint=...)``, and steps that were charged but lost are paid for again.

    Example::

        trainer = PrivateTrainer(model, args, train_dataset=data,
                                 plan=private_plan(args, epsilon=3, delta=1e-6, records=50_000, ledger="run.jsonl"))
        trainer.train()
        trainer.private.epsilon(1e-6)
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *others: Any,
        plan: PrivacyPlan,
        losses: UserLosses = record_loss,
        **more: Any,
    ) -> None:
        _check(args, plan, type(self), more)
        # A sample is one batch to the trainer. Whoever accumulates has said how many records fit at once.
        if plan.physical_batch is None and args.gradient_accumulation_steps > 1:
            plan = replace(plan, physical_batch=args.per_device_train_batch_size)
        self.plan, self._user_losses = plan, losses
        steps = steps_of(args, plan.sampling)
        ours = {"max_steps": steps, "gradient_accumulation_steps": 1, "ignore_data_skip": True}
        args = _with(args, **ours)
        self._private: PrivateGradient | None = None
        self._passes: Passes | None = None
        self._resumed: str | None = None
        super().__init__(model, args, *others, **more)

    @property
    def private(self) -> PrivateGradient:
        """The engine, there once training has begun."""
        if self._private is None:
            raise InputError("there is no private gradient before train() has begun")
        return self._private

    @property
    def ledger(self) -> Ledger:
        return self.private.ledger

    # What the trainer asks for

    def train(self, resume_from_checkpoint: str | bool | None = None, *others: Any, **more: Any) -> TrainOutput:
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise InputError(f"there is no checkpoint in {self.args.output_dir} to go on from")
        self._resumed = str(resume_from_checkpoint) if resume_from_checkpoint else None
        before = {name: _first_entries(p) for name, p in self.model.named_parameters() if p.requires_grad}
        try:
            found = super().train(self._resumed, *others, **more)
        finally:
            if self._passes is not None:
                self._passes.close()
            if self._private is not None:
                self._private.close()
        self._check_moved(before)
        metrics = {name: value for name, value in found.metrics.items() if name not in _OF_RECORDS}
        return found._replace(training_loss=math.nan, metrics=metrics)  # of private records: nobody has computed it

    def get_train_dataloader(self) -> Passes:
        if self.train_dataset is None:
            raise InputError("training needs a train_dataset")
        self._passes = Passes(self.plan.sampling, self._draw)
        return self._passes

    def training_step(self, model: nn.Module, inputs: Sample, num_items_in_batch: object = None) -> Tensor:
        model.train()
        self.private.backward(inputs)
        return torch.zeros((), device=self.args.device)

    def get_batch_samples(self, epoch_iterator: Iterator[Sample], *others: Any) -> tuple[list[Sample], None]:
        return [sample for sample in (next(epoch_iterator, None),) if sample is not None], None

    def num_examples(self, dataloader: Any) -> int:
        of_plan = isinstance(dataloader, Passes)
        return round(self.plan.sampling.implied_size) if of_plan else super().num_examples(dataloader)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # counting them would count a private sample's words

    def log(self, logs: dict[str, float], *others: Any, **more: Any) -> None:
        logs = {name: value for name, value in logs.items() if name not in _OF_RECORDS}
        if self.plan.budget is not None and self._private is not None and self.is_in_train:
            logs["epsilon"] = self._private.epsilon(self.plan.budget.delta)
        super().log(logs, *others, **more)

    def _save_checkpoint(self, *arguments: Any, **more: Any) -> None:
        """Ours first: what the trainer writes last, and older checkpoints it takes away, then find it there."""
        step = self.state.global_step
        folder = Path(self.args.output_dir) / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        self.private.save_checkpoint(folder / _CHECKPOINT, {}, step=step)
        super()._save_checkpoint(*arguments, **more)

    # What it gets

    def _draw(self) -> Generator[Sample, None, None]:
        """The samples of the whole run, or of the rest of it."""
        if self.model_wrapped is not self.model:
            raise InputError("the trainer has wrapped the model: private training needs one process and no compiler")
        data, collate = self._records()
        _settle_problem_type(self.model, data, collate)
        self._private = PrivateGradient(self.model, self._user_losses, self.plan)
        first = 0
        if self._resumed is not None:
            first, _ = self._private.load_checkpoint(Path(self._resumed) / _CHECKPOINT)
            if first != self.state.global_step:
                raise InputError(f"{self._resumed} has no {_CHECKPOINT} of step {self.state.global_step}")
        device, workers = self.args.device, self.args.dataloader_num_workers
        return self._private.samples(
            data, self.args.max_steps, first=first, collate_fn=collate, device=device, workers=workers
        )

    def _records(self) -> tuple[Any, Any]:
        data, collate = self.train_dataset, self.data_collator
        if hasattr(data, "column_names"):
            return self._remove_unused_columns(data, description="training"), collate
        return data, self._get_collator_with_removed_columns(collate, description="training")

    def _check_moved(self, before: Mapping[str, Tensor]) -> None:
        """Noise moves every weight that the optimizer holds; one that stayed belongs to another model."""
        if not self.state.global_step or not any(group["lr"] for group in self.optimizer.param_groups):
            return
        now = dict(self.model.named_parameters())
        still = [name for name, value in before.items() if torch.equal(_first_entries(now[name]), value)]
        if still:
            text = f"tacit: {still[0]} was to be trained and did not move; does the optimizer hold it?"
            warnings.warn(text, stacklevel=3)


def _check(args: TrainingArguments, plan: PrivacyPlan, kind: Any, more: Mapping[str, Any]) -> None:
    if not isinstance(plan, PrivacyPlan):
        raise InputError(f"plan must be a PrivacyPlan (see private_plan), found {type(plan).__name__}")
    if kind.compute_loss is not Trainer.compute_loss or more.get("compute_loss_func") is not None:
        raise InputError("a loss of your own is given as losses=..., one loss per record; compute_loss is not called")
    if more.get("model_init") is not None:
        raise InputError("model_init trains several models on the same records; make a private trainer for each")
    if args.world_size > 1 or args.n_gpu > 1:
        raise InputError("private training with this trainer runs in one process and on one device")
    if args.label_smoothing_factor or args.auto_find_batch_size:
        raise InputError(
            "label_smoothing_factor belongs into losses=..., and auto_find_batch_size is not needed: as many records "
            "are computed at once as fit into memory"
        )
    if args.include_num_input_tokens_seen not in (False, "no"):
        raise InputError("include_num_input_tokens_seen counts the words of private samples; leave it out")
    asked = args.per_device_train_batch_size * args.gradient_accumulation_steps
    if args.gradient_accumulation_steps > 1 and abs(asked - plan.sampling.denominator) > 0.5:
        raise InputError(
            f"the arguments ask for {asked} records a step (per_device_train_batch_size times "
            f"gradient_accumulation_steps), the plan for {plan.sampling.denominator:g}; give them the same"
        )


def _with(args: TrainingArguments, **changed: Any) -> TrainingArguments:
    args = copy.copy(args)
    for name, value in changed.items():
        setattr(args, name, value)
    return args


def _first_entries(parameter: Tensor) -> Tensor:
    return parameter.detach().flatten()[:64].clone()


def _settle_problem_type(model: nn.Module, data: Any, collate: Any) -> None:
    """Classifiers note in their config at the first call which loss they take, and may not while records are seen."""
    config = getattr(model, "config", None)
    if config is None or getattr(config, "problem_type", "") is not None:
        return
    labels = DataSource(data, collate).schema().get("labels")  # of which only the type is looked at
    if labels is None:
        return
    if getattr(config, "num_labels", 1) == 1:
        config.problem_type = "regression"
    else:
        whole = not labels.is_floating_point()
        config.problem_type = "single_label_classification" if whole else "multi_label_classification"
