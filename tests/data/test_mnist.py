import pytest

from tacit.data import load_fashion_mnist, load_mnist
from tacit.errors import InputError


def test_the_real_digits(data_folder):
    data = load_mnist(data_folder)
    assert data.train_images.shape == (60_000, 1, 28, 28)
    assert data.test_labels[:5].tolist() == [7, 2, 1, 0, 4]


def test_without_a_folder_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    with pytest.raises(InputError, match="TACIT_DATA"):
        load_mnist()


def test_a_missing_or_changed_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_mnist(tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(b"not the original")
    with pytest.raises(InputError, match="sha256"):
        load_mnist(tmp_path)


def test_clothes_have_the_form_of_digits(data_folder):
    data = load_fashion_mnist(data_folder)
    assert data.train_images.shape == (60_000, 1, 28, 28)
    assert data.test_labels[:5].tolist() == [9, 2, 1, 1, 6]
