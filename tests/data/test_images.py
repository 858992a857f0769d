"""CIFAR-10 and SVHN: from original files of the right form, and from sheets of the real images."""

import builtins
import io

import numpy as np
import pytest
import torch
from scipy.io import savemat

from reliability.f23_archives import entry, tar
from tacit.data import cifar10, load_cifar10, load_svhn
from tacit.data.sheets import read_sheet
from tacit.data.svhn import parse_mat
from tacit.errors import InputError


def test_the_binary_archive_of_cifar10(monkeypatch):
    """Planes of red, green and blue behind each class, five batches for training and one for testing."""
    monkeypatch.setattr(cifar10, "_EACH", 2)
    rows = np.arange(12 * 3073, dtype=np.uint32).astype(np.uint8).reshape(6, 2, 3073)
    names = (*cifar10._BATCHES, cifar10._TEST)
    archive = tar(*((entry(name, 2 * 3073), batch.tobytes()) for name, batch in zip(names, rows, strict=True)))
    data = cifar10.parse_archive(archive, "x")
    assert data.train_images.shape == (10, 3, 32, 32)
    assert data.train_labels.tolist() == rows[:5, :, 0].ravel().tolist()
    assert torch.equal(data.test_images[1, 2].ravel(), torch.from_numpy(rows[5, 1, 1 + 2 * 1024 :].copy()))


def test_a_mat_file_of_svhn():
    images = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    file = io.BytesIO()
    savemat(file, {"X": images, "y": np.array([[1], [10], [9], [2]], np.uint8)})
    found, labels = parse_mat(file.getvalue(), "x")
    assert labels.tolist() == [1, 0, 9, 2]  # ten stands for zero
    assert torch.equal(found[3, 1], torch.from_numpy(images[:, :, 1, 3].copy()))
    with pytest.raises(InputError, match="not one of SVHN's files"):
        parse_mat(b"MATLAB", "x")


def test_the_real_house_numbers(data_folder, capsys):
    data = load_svhn(data_folder)
    assert len(data.train_labels) in (10_000, 73_257)  # sheets hold the first of them only
    assert data.train_images.shape[1:] == (3, 32, 32)
    assert data.train_labels[:5].tolist() == [1, 9, 2, 3, 2]
    assert "non-commercial" in capsys.readouterr().err


@pytest.mark.slow
def test_the_real_photographs(data_folder):
    data = load_cifar10(data_folder)
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert data.test_images.shape == (10_000, 3, 32, 32)
    assert data.test_labels[:5].tolist() == [3, 8, 8, 0, 6]
    assert torch.bincount(data.train_labels.long()).tolist() == [5_000] * 10


def test_without_pillow_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def no_pillow(name, *given):
        if name == "PIL":
            raise ImportError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", no_pillow)
    with pytest.raises(InputError, match=r"tacit\[images\]"):
        read_sheet(b"", 1, "sheet.webp")


def test_nothing_there_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="download=True"):
        load_cifar10(tmp_path)
    with pytest.raises(InputError, match="download=True"):
        load_svhn(tmp_path)
    for place, name in (("cifar10", "cifar-10-binary.tar.gz"), ("svhn", "train_32x32.mat")):
        (tmp_path / place).mkdir()
        (tmp_path / place / name).write_bytes(b"not the original")
    for load in (load_cifar10, load_svhn):
        with pytest.raises(InputError, match="md5 differs"):
            load(tmp_path)
