"""Paper G, sections 2 and 4: flat against per-layer clipping, proportional against dimension-adjusted noise.

All ways have the same noise multiplier, hence the same epsilon; the paper gives no numbers. Means over seeds; digits.
"""

import statistics

from digits import STEPS, accuracy, calibrated

import tacit
from tacit.mechanisms import noise_by_dimension, noise_proportional
from tacit.reproduction import Work

CLIP, RATE = 1.0, 2.0


def ways(multiplier: float) -> dict[str, tuple[tacit.ClipRecords | tacit.ClipLayers, tacit.GaussianNoise]]:
    proportional = tacit.GaussianNoise(multiplier=multiplier)
    by_dimension = tacit.GaussianNoise(multiplier=multiplier, allocation="dimension")
    return {
        "flat": (tacit.ClipRecords(CLIP), proportional),
        "layers, equal clips": (tacit.ClipLayers(CLIP), proportional),
        "layers, clips by dimension": (tacit.ClipLayers(CLIP, allocation="dimension"), proportional),
        "layers, equal clips, noise by dimension": (tacit.ClipLayers(CLIP), by_dimension),
    }


def reproduce(work: Work) -> None:
    steps, seeds = (20, 1) if work.quick else (STEPS, 5)
    multiplier = calibrated(steps)
    for name, (clipping, noise) in ways(multiplier).items():
        if work.wants(name):
            found = [accuracy(work, clipping, noise, RATE, steps, work.seed + number) for number in range(seeds)]
            work.measure(f"accuracy, {name}", statistics.fmean(found))
    clips, sizes = [CLIP / 2**0.5] * 2, [64 * 128 + 128, 128 * 10 + 10]
    ours, theirs = noise_by_dimension(multiplier, clips, sizes), noise_proportional(multiplier, clips)
    work.measure("noise by dimension over proportional, large layer", ours[0] / theirs[0])
    work.measure("noise by dimension over proportional, small layer", ours[1] / theirs[1])
    work.note("clip norm and rate were fixed beforehand and are the same for all ways; none was tuned to its best")
