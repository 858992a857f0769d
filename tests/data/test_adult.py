import pytest
import torch

from tacit.data import load_adult
from tacit.errors import InputError


def test_the_real_table(data_folder):
    data = load_adult(data_folder)
    assert (len(data.train_labels), len(data.test_labels)) == (32_561, 16_281)
    assert int(data.train_labels.sum()) == 7_841  # documented: 24.08 %
    torch.testing.assert_close(data.train_inputs.norm(dim=1), torch.ones(32_561))


def test_a_changed_file_is_refused(tmp_path):
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_text("39, State-gov\n")
    with pytest.raises(InputError, match="sha256"):
        load_adult(tmp_path)
