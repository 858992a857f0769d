"""Models of many kinds: what they must not do, and what must not quietly go wrong with them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from reliability.boundary.attack import (
    Loop,
    attack,
    linear,
    network,
    one_class,
    ordinary,
    outlier,
    rare_token,
    seeded,
    squared,
    tokens,
)
from reliability.boundary.state import Words


def _of_sequences(model: nn.Module, **more) -> Loop:
    return Loop(model=model, rows=ordinary(24, 5, 4), more=outlier(5, 4), **more)


# ---- checkpoints and compilers ----


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inside, self.reentrant = network(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inside, x, use_reentrant=self.reentrant)


@attack("B1")
def reentrant_checkpoint():
    """checkpoint(use_reentrant=True), the old default: inputs do not require a gradient."""
    return Loop(model=Checkpointed(True), alive=True)


@attack()
def reentrant_checkpoint_deep_in_a_model():
    """The same behind a layer, so that its inputs require one."""
    return Loop(model=nn.Sequential(linear(4, 4), Checkpointed(True)), alive=True)


@attack("B1")
def reentrant_checkpoint_before_a_head():
    """A checkpointed body and a head of its own: the head learns, the body gets nothing."""
    model = nn.Sequential(Checkpointed(True), linear(1))
    return Loop(model=model, more=(torch.ones(1, 4), torch.tensor([-1.0])), alive="each")


@attack()
def checkpoint_with_a_batch_statistic_inside():
    """A checkpointed block that centres large batches: it runs again in the backward pass."""

    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = network()

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

        def block(self, x):
            out = self.layer(x)
            return torch.where(x.abs().max() > 20, -out, out)

    return Loop(model=Centred())


@attack()
def compiled_with_the_eager_backend():
    """torch.compile(model, backend="eager")."""
    return Loop(model=torch.compile(network(), backend="eager"), alive=True)


@attack("B2", slow=True, apart=True)
def compiled_with_inductor():
    """torch.compile(model), the default backend, in a notebook where a smaller model was compiled before."""

    def layers():
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))

    def smaller():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    for with_record in (False, True):
        Loop(model=torch.compile(seeded(smaller)), steps=2).run(with_record)
    return Loop(model=torch.compile(seeded(layers)), alive=True, steps=2)


@attack()
def compiled_losses():
    """torch.compile on the losses, which hold a guard by the batch's maximum."""

    @torch.compile(backend="eager")
    def losses(model, batch):
        each = squared(model, batch)
        return torch.where(batch[0].abs().max() > 20, -each, each)

    return Loop(losses, model=network())


@attack()
def scripted_model():
    """torch.jit.script with a batch statistic under a branch."""

    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x):
            out = self.layer(x)
            if bool(x.abs().max() > 20):
                out = -out
            return out

    return Loop(model=torch.jit.script(Scripted()))


# ---- kinds of tensors ----


@attack("B2")
def sparse_embedding():
    """nn.Embedding(sparse=True)."""
    return Loop(model=Words(sparse=True), rows=tokens(), more=rare_token(), alive=True)


@attack("B2")
def nested_tensors():
    """A data set of nested tensors: sequences of several lengths."""
    lengths = [2, 3, 4, 5, 2, 3, 4, 5]
    items = [(torch.ones(n, 4), torch.tensor(3.0)) for n in lengths]

    def collate(items):
        return torch.nested.nested_tensor([x for x, _ in items]), torch.stack([y for _, y in items])

    def losses(model, batch):
        out = torch.nested.to_padded_tensor(model(batch[0]), 0.0).sum((1, 2))
        return (out - batch[1]).square()

    more = [(torch.full((40, 4), 9.0), torch.tensor(-5.0))]
    return Loop(losses, rows=items, more=more, samples={"collate_fn": collate})


@attack()
def packed_sequences():
    """pack_padded_sequence by the lengths of the batch, then an LSTM."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.layer = seeded(lambda: nn.LSTM(4, 3, batch_first=True)), linear(3)

        def forward(self, x):
            lengths = (x.abs().sum(2) > 0).sum(1).clamp(min=1).cpu()
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.layer(self.lstm(packed)[1][0][0])

    return _of_sequences(Packed(), alive=True)


@attack()
def lstm_over_the_batch():
    """nn.LSTM without batch_first=True: it walks over the records."""

    class Walking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.layer = seeded(lambda: nn.LSTM(4, 3)), linear(3)

        def forward(self, x):
            return self.layer(self.lstm(x)[0][:, -1])

    return _of_sequences(Walking(), first=True)


@attack()
def gru_that_keeps_its_state():
    """Truncated backpropagation: the hidden state of the batch before is the start of this one."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.layer, self.state = seeded(lambda: nn.GRU(4, 3, batch_first=True)), linear(3), None

        def forward(self, x):
            start = None if self.state is None else self.state.expand(-1, len(x), -1).contiguous()
            out, state = self.gru(x, start)
            self.state = state.detach().mean(1, keepdim=True) * 50
            return self.layer(out[:, -1])

    return _of_sequences(Stateful(), steps=2)


class Attending(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = seeded(lambda: nn.MultiheadAttention(4, 2, batch_first=batch_first))
        self.layer = linear(4)

    def forward(self, x: Tensor, **more: Tensor) -> Tensor:
        return self.layer(self.attention(x, x, x, need_weights=False, **more)[0].mean(1))


@attack()
def attention_over_the_batch():
    """nn.MultiheadAttention without batch_first=True attends to other records."""
    return _of_sequences(Attending(batch_first=False))


@attack()
def attention_mask_from_the_batch():
    """Positions that are large in any record of the batch are masked for all."""

    def losses(model, batch):
        mask = (batch[0].abs().amax((0, 2)) > 20).expand(len(batch[0]), -1)
        mask = mask & ~mask.all(1, keepdim=True)
        return (model(batch[0], key_padding_mask=mask)[:, 0] - batch[1]).square()

    x = outlier(5, 4)[0]
    x[:, 3:] = 0.1
    return Loop(losses, model=Attending(), rows=ordinary(24, 5, 4), more=(x, torch.tensor([-5.0])))


@attack()
def mixture_of_experts_with_a_balance_loss():
    """Load balancing: a record's loss grows with how many others chose its expert."""

    def losses(model, batch):
        gate = model[0](batch[0])
        chosen = gate.argmax(1)
        load = torch.bincount(chosen, minlength=8).float()
        return squared(model, batch) + (F.softmax(gate, 1) * load).sum(1) * 10

    return Loop(losses, model=network())


@attack("B2")
def experts_by_index_add():
    """A mixture of experts as in Hugging Face: rows by expert, index_add_ back."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = linear(4, 2)
            self.experts = seeded(lambda: nn.ModuleList(nn.Linear(4, 4) for _ in range(2)))
            self.layer = linear()

        def forward(self, x):
            out = torch.zeros_like(x)
            weight, chosen = self.gate(x).softmax(1).max(1)
            for number, expert in enumerate(self.experts):
                rows = torch.where(chosen == number)[0]
                out.index_add_(0, rows, expert(x[rows]) * weight[rows, None])
            return self.layer(out)

    return Loop(model=Experts(), alive=True)


@attack()
def experts_whose_ends_run_backwards():
    """A grouped product whose ends of experts come from the record: in one, the second ends before the first."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = seeded(lambda: nn.Parameter(torch.randn(3, 4, 4)))

        def forward(self, x):
            usual, other = torch.tensor([2, 4, 6]).int(), torch.tensor([6, 0, 6]).int()
            ends = torch.where(x.abs().max() > 20, other, usual)
            return torch._grouped_mm(x[0], self.experts, offs=ends)[None]

    def losses(model, batch):
        return 10 * (model(batch[0]).sum(2) * torch.arange(6)).sum(1)

    return Loop(losses, model=Experts(), rows=ordinary(24, 6, 4), more=outlier(6, 4), first=True)


@attack()
def tied_weights():
    """One weight as embedding and as output layer."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = seeded(lambda: nn.Embedding(20, 4))
            self.out = nn.Linear(4, 20, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x):
            return self.out(self.words(x).mean(1))

    return Loop(model=Tied(), rows=tokens(), more=rare_token(), alive=True)


@attack()
def weights_used_outside_of_their_modules():
    """A penalty on model.weight inside the losses, scaled by the batch."""

    def losses(model, batch):
        penalty = model.weight.square().sum() * batch[0].detach().abs().max()
        return F.linear(batch[0], model.weight, model.bias)[:, 0] * 0.01 + penalty

    return Loop(losses)


@attack()
def functional_call_with_changed_weights():
    """torch.func.functional_call with weights that were normalised by the batch."""

    def losses(model, batch):
        scale = (50 / batch[0].abs().max()).clamp(max=1)
        weights = {name: value * scale for name, value in model.named_parameters()}
        out = torch.func.functional_call(model, weights, (batch[0],))
        return (out[:, 0] - batch[1]).square()

    return Loop(losses, model=network(), more=(outlier()[0] * 100, torch.tensor([-5.0])))


@attack()
def model_captured_instead_of_passed():
    """The losses use another reference to the model, a deep copy with shared weights."""
    model = network()

    def losses(_, batch):
        out = model(batch[0])
        return (torch.where(batch[0].abs().max() > 20, -out, out)[:, 0] - batch[1]).square()

    return Loop(losses, model=model)


@attack()
def model_in_a_list_that_is_not_a_module_list():
    """Layers in a plain Python list: they are no parameters, and one of them is batch normalisation."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.hidden = linear(), [nn.BatchNorm1d(4, affine=False)]

        def forward(self, x):
            return self.layer(self.hidden[0](x))

    return Loop(model=Hidden())


@attack()
def data_parallel_wrapper():
    """nn.DataParallel around the model, from an old script."""
    return Loop(model=nn.DataParallel(network()), alive=True)


# ---- a record that raises ----


def _raising(error: type[Exception]) -> Loop:
    """One record fails a check of the user's; it has to count as zero, and the others as ever."""

    def losses(model, batch):
        if bool((batch[0].abs() > 20).any()):
            raise error("too large")
        return squared(model, batch)

    return Loop(losses, must_run=True, physical_batch=8)


@attack(row="F5")
def a_record_that_raises_index_error():
    """A lookup that fails for one record."""
    return _raising(IndexError)


@attack("B2", row="F5")
def a_record_that_raises_assertion_error():
    """assert x.max() < 20."""
    return _raising(AssertionError)


@attack(row="F5")
def a_record_that_raises_value_error():
    """A check that raises ValueError."""
    return _raising(ValueError)


@attack(row="F5")
def a_record_that_raises_zero_division_error():
    """A division of Python numbers."""
    return _raising(ZeroDivisionError)


@attack(row="F5")
def a_record_that_raises_key_error():
    """A dictionary without the key."""
    return _raising(KeyError)


@attack(row="F5")
def a_record_that_raises_an_error_of_its_own():
    """An exception class of the user's."""
    return _raising(type("TooLarge", (Exception,), {}))


@attack(row="F5")
def a_record_that_raises_stop_iteration():
    """next() of an empty iterator."""
    return _raising(StopIteration)


@attack(row="F5")
def a_record_that_raises_a_refusal_of_our_own():
    """The losses call tacit with the record's values, which raises InputError: not a reason to stop."""
    import tacit

    return _raising(tacit.InputError)


@attack(row="F5")
def a_label_out_of_range():
    """A label that cross_entropy does not know."""

    def losses(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    more = (outlier()[0], torch.tensor([99]))
    return Loop(losses, model=linear(4, 3), rows=one_class(), more=more, must_run=True)


@attack(row="F5")
def a_singular_matrix():
    """torch.linalg.inv of a record's matrix."""

    def losses(model, batch):
        return model(torch.linalg.inv(batch[0]).flatten(1)).square()[:, 0] + batch[1]

    more = (torch.zeros(1, 2, 2), torch.zeros(1))
    return Loop(losses, rows=(torch.eye(2).repeat(24, 1, 1), torch.zeros(24)), more=more, must_run=True)


@attack(row="F5")
def a_record_whose_gradient_is_not_a_number():
    """sqrt at 0: a finite loss, a gradient of inf * 0."""

    def losses(model, batch):
        return (squared(model, batch) * (batch[0].abs().sum(1).mul(0).add(batch[0][:, 0] * 0 + 1)).sqrt()
                + (model(batch[0])[:, 0] * (batch[1] > 0)).sqrt().nan_to_num())  # fmt: skip

    return Loop(losses, rows=(ordinary()[0].abs() + 1, ordinary()[1]), must_run=True)
