"""The workloads in JAX, with the weights of their PyTorch models, and a step of JAX-Privacy on them.

XLA takes all cores whatever ``--threads`` says: pin the process to one for a one-thread table.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy.clipping
import jax_privacy.noise_addition
from torch import nn
from workloads import Attention, Batch, Block, Transformer

Params = dict[str, Any]
NCHW = ("NCHW", "OIHW", "NCHW")


def apply(module: nn.Module, params: Params, prefix: str, x: Any) -> Any:
    """The module's forward pass, with parameters by their PyTorch names."""

    def own(name: str) -> Any:
        return params[prefix + name]

    def child(name: str, x: Any) -> Any:
        return apply(getattr(module, name), params, f"{prefix}{name}.", x)

    match module:
        case nn.Sequential():
            for name, part in module.named_children():
                x = apply(part, params, f"{prefix}{name}.", x)
            return x
        case nn.Linear():
            return x @ own("weight").T + own("bias")
        case nn.Conv2d():
            pads = [(pad, pad) for pad in module.padding]
            y = jax.lax.conv_general_dilated(x, own("weight"), module.stride, pads, dimension_numbers=NCHW)
            return y + own("bias")[:, None, None]
        case nn.ReLU():
            return jax.nn.relu(x)
        case nn.MaxPool2d():
            return _max_pool(x, module.kernel_size, module.stride)
        case nn.Flatten():
            return x.reshape(len(x), -1)
        case nn.GroupNorm():
            rows = x.reshape(len(x), module.num_groups, -1)
            rows = _normalise(rows, module.eps).reshape(x.shape)
            return rows * own("weight")[:, None, None] + own("bias")[:, None, None]
        case nn.LayerNorm():
            return _normalise(x, module.eps) * own("weight") + own("bias")
        case nn.Embedding():
            return own("weight")[x]
        case Attention():
            q, k, v = jnp.split(child("qkv", x), 3, axis=-1)
            q, k, v = (p.reshape(*p.shape[:2], module.heads, -1).swapaxes(1, 2) for p in (q, k, v))
            weights = jax.nn.softmax(q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5, axis=-1)
            return child("out", (weights @ v).swapaxes(1, 2).reshape(x.shape))
        case Block():
            x = x + child("attention", child("first", x))
            return x + child("narrow", jax.nn.gelu(child("wide", child("second", x)), approximate=False))
        case Transformer():
            return child("head", child("blocks", child("words", x)).mean(1))
    raise NotImplementedError(type(module).__name__)


def _max_pool(x: Any, size: int, stride: int) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), "VALID")


def _normalise(x: Any, eps: float) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + eps)


def build_step(model: nn.Module, batch: Batch, microbatch: int | None = None) -> Callable[[], None]:
    """Clipped gradients, Gaussian noise and a step of size 1e-3, compiled as one."""
    params: Params = {name: jnp.asarray(value.detach().numpy()) for name, value in model.named_parameters()}
    x, y = (jnp.asarray(part.numpy()) for part in batch)

    def loss(params: Params, x: Any, y: Any) -> Any:
        logits = jax.nn.log_softmax(apply(model, params, "", x))
        return -jnp.take_along_axis(logits, y[:, None], axis=1).mean()

    clipped = jax_privacy.clipping.clipped_grad(
        loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=len(y), microbatch_size=microbatch
    )
    privatizer = jax_privacy.noise_addition.gaussian_privatizer(stddev=1.0 / len(y), prng_key=jax.random.key(0))

    @jax.jit
    def update(params: Params, state: Any) -> tuple[Params, Any]:
        noisy, state = privatizer.update(clipped(params, x, y), state)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, noisy), state

    held = [params, privatizer.init(params)]

    def step() -> None:
        held[:] = jax.block_until_ready(update(*held))

    return step
