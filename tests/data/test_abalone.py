import pytest
import torch

from tacit.data import load_abalone
from tacit.data.abalone import parse_table
from tacit.errors import InputError

ROW = "M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15"


def test_the_real_table(data_folder):
    data = load_abalone(data_folder)
    assert (len(data.train_labels), len(data.test_labels)) == (3_133, 1_044)
    assert data.train_labels[:3].tolist() == [15, 7, 9]
    torch.testing.assert_close(data.train_inputs.norm(dim=1), torch.ones(3_133))


def test_a_row_does_not_change_the_features_of_another():
    """Failure-modes F15."""
    alone, _ = parse_table(ROW)
    beside, _ = parse_table(ROW + "\nX,99,-5,1e9,0,0,0,0,999")
    assert torch.equal(alone[0], beside[0])
    torch.testing.assert_close(beside[1].norm(), torch.tensor(1.0))


@pytest.mark.parametrize("text", ["", "M,1", ROW + ",3", ROW.replace("15", "nan"), ROW.replace("15", "old"), "\0"])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(InputError, match="abalones"):
        parse_table(text)


def test_a_changed_file_is_refused(tmp_path):
    (tmp_path / "abalone").mkdir()
    (tmp_path / "abalone" / "abalone.data").write_text(ROW)
    with pytest.raises(InputError, match="sha256"):
        load_abalone(tmp_path)
