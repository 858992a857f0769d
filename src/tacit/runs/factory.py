"""A user's own model, named on the command line as MODULE:FACTORY."""

import importlib
import sys
from pathlib import Path

import torch
from torch import nn

from tacit.errors import InputError


def model_from_factory(name: str, features: int, outputs: int) -> nn.Module:
    """What the factory makes of the numbers of features and of outputs; its start is the same every time."""
    module, _, factory = name.partition(":")
    if not module or not factory:
        raise InputError(f"model must be linear, mlp or MODULE:FACTORY, found {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        build = getattr(importlib.import_module(module), factory)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = build(features, outputs)
    except Exception as error:
        raise InputError(f"model {name}: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"model {name} gave {type(model).__name__}; it must return a torch.nn.Module")
    return model
