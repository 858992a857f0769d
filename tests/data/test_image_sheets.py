import io

import numpy as np
import pytest
from PIL import Image

from tacit.data import load_cifar10, load_svhn
from tacit.data.image_sheets import _pictures
from tacit.errors import InputError


def test_tiles_are_read_row_by_row():
    pixels = np.random.default_rng(0).integers(0, 256, (2 * 32, 100 * 32, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", lossless=True)
    found = _pictures(file.getvalue())
    assert found.shape == (200, 3, 32, 32)
    assert (found[103].numpy() == pixels[32:, 3 * 32 : 4 * 32].transpose(2, 0, 1)).all()


def test_the_real_things(data_folder):
    data = load_cifar10(data_folder)
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert data.test_labels[:5].tolist() == [3, 8, 8, 0, 6]


def test_the_real_house_numbers(data_folder):
    data = load_svhn(data_folder)
    assert data.train_images.shape == (10_000, 3, 32, 32)
    assert data.test_images.shape == (4_000, 3, 32, 32)
    assert data.test_labels[:5].tolist() == [5, 2, 1, 0, 6]


@pytest.mark.parametrize("load", [load_cifar10, load_svhn])
def test_a_missing_file_is_refused(load, tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
