"""Autograd functions, hooks, modes and operators of the user's own: where gradients pass, records can meet."""

import torch
from torch import Tensor, nn

from reliability.boundary.attack import Loop, Then, attack, linear, network, squared

# ---- custom autograd functions ----


def _through(function, **more):
    """Losses whose model output passes through a function of the user's."""

    def losses(model, batch):
        out = function(model(batch[0]))
        return (out[:, 0] - batch[1]).square()

    return Loop(losses, model=network(), **more)


@attack("A1")
def custom_backward_divides_by_the_batch_maximum():
    """Stop gradients from exploding: divide them by the largest of the batch, where it is above 50."""

    class Calm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient / (gradient.abs().max() / 50).clamp(min=1)

    return _through(Calm.apply, more=_far())


@attack()
def custom_backward_with_setup_context():
    """The same in the newer form, with setup_context and saved tensors."""

    class Calm(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            return gradient / (gradient.abs().max() / 50).clamp(min=1)

    return _through(Calm.apply, more=_far())


@attack()
def custom_function_with_generated_vmap_rule():
    """generate_vmap_rule = True, and a backward that uses the batch's largest gradient."""

    class Calm(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return gradient / (gradient.abs().max() / 50).clamp(min=1)

    return _through(Calm.apply, more=_far())


@attack()
def custom_function_whose_vmap_rule_mixes():
    """A hand-written vmap rule for speed, which works on the whole batch."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x / (x.abs().amax() / 50).clamp(min=1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vmap(info, in_dims, x):
            return Scaled.apply(x), in_dims[0]

        @staticmethod
        def backward(ctx, gradient):
            return gradient / (ctx.saved_tensors[0].abs().amax() / 50).clamp(min=1)

    return Loop(model=Then(Scaled.apply), rows=_small_gradients(), steps=1)


@attack()
def custom_function_reading_storage_by_numpy():
    """A forward in numpy, as wrappers of C libraries have it."""

    class Numpy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values = x.detach().numpy()
            ctx.large = float(abs(values).max()) > 20
            return torch.from_numpy(values.copy())

        @staticmethod
        def backward(ctx, gradient):
            return -gradient if ctx.large else gradient

    return Loop(lambda model, batch: (Numpy.apply(model(batch[0]))[:, 0] - batch[1]).square())


@attack()
def custom_function_with_state_on_its_class():
    """A statistic kept on the Function: the running largest gradient."""

    class Running(torch.autograd.Function):
        largest = 50.0

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            Running.largest = max(Running.largest, float(gradient.abs().max()))
            return gradient * (50 / Running.largest)

    return _through(Running.apply, more=_far(), steps=2)


# ---- operators ----


def _operator(name: str, mixes_in_vmap: bool):
    @torch.library.custom_op(f"boundary::{name}", mutates_args=())
    def scaled(x: Tensor) -> Tensor:
        return x / float(x.abs().max() / 50) if float(x.abs().max()) > 50 else x.clone()

    scaled.register_fake(torch.empty_like)

    def backward(ctx, gradient):
        return gradient / ctx.by

    def setup(ctx, inputs, output):
        ctx.by = max(1.0, float(inputs[0].abs().max()) / 50)

    scaled.register_autograd(backward, setup_context=setup)
    if mixes_in_vmap:
        scaled.register_vmap(lambda info, in_dims, x: (scaled(x), in_dims[0]))
    return scaled


@attack()
def operator_of_a_library():
    """torch.library.custom_op around somebody's kernel, which scales by the batch's maximum."""
    return Loop(model=Then(lambda x: _MAXIMUM(x)), rows=_small_gradients())


@attack()
def operator_with_a_vmap_that_mixes():
    """The same with register_vmap that hands the whole batch to the kernel."""
    return Loop(model=Then(lambda x: _MAXIMUM_VMAP(x)), rows=_small_gradients())


_MAXIMUM = _operator("maximum", mixes_in_vmap=False)
_MAXIMUM_VMAP = _operator("maximum_vmap", mixes_in_vmap=True)


# ---- hooks ----


def _calmed(gradient: Tensor) -> Tensor:
    return gradient / (gradient.abs().max() / 50).clamp(min=1)


@attack()
def register_hook_on_activations():
    """Clip the gradient of an activation by the batch's maximum."""

    def losses(model, batch):
        out = model(batch[0])
        if out.requires_grad:
            out.register_hook(_calmed)
        return (out[:, 0] - batch[1]).square()

    return Loop(losses, model=network(), more=_far())


@attack()
def full_backward_hook_on_a_module():
    """module.register_full_backward_hook that scales by the batch's maximum."""
    model = network()
    model[2].register_full_backward_hook(lambda module, before, after: tuple(_calmed(g) for g in before))
    return Loop(model=model, more=_far())


@attack()
def full_backward_pre_hook_on_a_module():
    """register_full_backward_pre_hook, the same for what comes in."""
    model = network()
    model[2].register_full_backward_pre_hook(lambda module, after: tuple(_calmed(g) for g in after))
    return Loop(model=model, more=_far())


@attack()
def hook_on_a_parameter():
    """weight.register_hook: normalise the gradient, as many training scripts clip it."""
    model = linear()
    model.weight.register_hook(lambda gradient: gradient / (gradient.norm() / 1e-3))
    return Loop(model=model, rows=_small_gradients(), alive=False)


@attack()
def forward_hook_that_normalises():
    """A forward hook that centres the output over the batch if it is large."""
    model = network()
    model[0].register_forward_hook(lambda module, x, out: torch.where(out.abs().max() > 20, -out, out))
    return Loop(model=model)


@attack()
def forward_hook_with_state():
    """A forward hook that keeps the largest activation and divides by it."""
    seen = [20.0]

    def hook(module, inputs, out):
        seen[0] = max(seen[0], float(out.detach().abs().max()))
        return out * (20.0 / seen[0])

    model = network()
    model[0].register_forward_hook(hook)
    return Loop(model=model, steps=2, first=True, physical_batch=8)


@attack()
def forward_pre_hook_that_keeps_the_batch():
    """A forward pre-hook that remembers the inputs before, for a residual over time."""
    before = []

    def hook(module, inputs):
        x = inputs[0]
        if before and before[-1].shape == x.shape:
            x = x - 0.5 * before[-1]
        before.append(inputs[0].detach())
        return (x,)

    model = network()
    model.register_forward_pre_hook(hook)
    return Loop(model=model, steps=2)


@attack()
def global_forward_hook():
    """A hook for all modules, as profilers set it, which scales by the largest seen."""
    from torch.nn.modules.module import register_module_forward_hook

    seen = [20.0]

    def hook(module, inputs, out):
        seen[0] = max(seen[0], float(out.detach().abs().max()))
        return out * (20.0 / seen[0]) if isinstance(module, nn.Linear) else out

    def losses(model, batch):
        handle = register_module_forward_hook(hook)
        try:
            return squared(model, batch)
        finally:
            handle.remove()

    return Loop(losses, steps=2, first=True, physical_batch=8)


@attack()
def saved_tensors_hooks_that_mix():
    """Compress saved activations to eight bits, with one scale for the batch."""

    def pack(value):
        scale = (value.abs().max() / 127).clamp(min=1e-3)
        return (value / scale).round(), scale

    def losses(model, batch):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept[0] * kept[1]):
            return squared(model, batch)

    return Loop(losses, model=network())


@attack()
def saved_tensors_on_cpu():
    """torch.autograd.graph.save_on_cpu, to save memory: harmless, so it has to work or be refused."""

    def losses(model, batch):
        with torch.autograd.graph.save_on_cpu():
            return squared(model, batch)

    return Loop(losses, model=network(), alive=True)


# ---- modes and subclasses ----


@attack()
def dispatch_mode_inside_the_losses():
    """A TorchDispatchMode that replaces large intermediate results by clamped ones."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calm(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.is_floating_point() and out.numel() and float(out.abs().max()) > 50:
                return out * 1e-3
            return out

    def losses(model, batch):
        with Calm():
            return squared(model, batch)

    return Loop(losses, model=network())


@attack()
def function_mode_inside_the_losses():
    """A TorchFunctionMode that scales every linear layer's output by its largest entry."""
    from torch.overrides import TorchFunctionMode

    class Calm(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func is torch.nn.functional.linear:
                out = out * (50 / out.detach().abs().max()).clamp(max=1)
            return out

    def losses(model, batch):
        with Calm():
            return squared(model, batch)

    return Loop(losses, model=network())


class Watched(Tensor):
    """A tensor that keeps its values in range, whatever is done to it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func is Tensor.__sub__ and isinstance(out, Tensor):
            return out * (50 / out.detach().abs().max()).clamp(max=1)
        return out


@attack()
def tensor_subclass_with_a_rule_for_the_batch():
    """Inputs of a Tensor subclass that scales differences by their maximum."""

    def losses(model, batch):
        return (model(batch[0])[:, 0].as_subclass(Watched) - batch[1]).square().as_subclass(Tensor)

    return Loop(losses, model=network(), more=_far())


@attack()
def parameter_of_a_tensor_subclass():
    """A weight whose __torch_function__ looks at what it is multiplied with."""

    class Weight(nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                out = func(*args, **(kwargs or {}))
                if func is torch.nn.functional.linear:
                    out = out * (50 / out.detach().abs().max()).clamp(max=1)
            return out

    model = network()
    model[0].weight = Weight(model[0].weight.detach().clone())
    return Loop(model=model)


@attack()
def patched_functional():
    """A library that patches torch.nn.functional.linear while it runs, with a scale for the batch."""
    plain = torch.nn.functional.linear

    def patched(x, weight, bias=None):
        out = plain(x, weight, bias)
        return out * (50 / out.detach().abs().max()).clamp(max=1)

    def losses(model, batch):
        torch.nn.functional.linear = patched
        try:
            return squared(model, batch)
        finally:
            torch.nn.functional.linear = plain

    return Loop(losses, model=network())


def _far() -> tuple[Tensor, Tensor]:
    """A target so far away that its gradient dwarfs the others'."""
    return torch.zeros(1, 4), torch.tensor([-1e6])


def _small_gradients() -> tuple[Tensor, Tensor]:
    """Records that are not clipped, so that a common scale shows."""
    x = torch.eye(4).repeat(6, 1)
    return x, torch.full((24,), 0.6)
