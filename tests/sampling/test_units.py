import numpy as np
import pytest

from tacit.errors import InputError
from tacit.sampling import Microbatches, Records, Users

USERS = np.array([7, 3, 7, 9, 3, 3])


def test_records_stand_alone():
    drawn = Records().rows_of(np.array([1, 4]), 6, None)
    assert drawn.rows.tolist() == [1, 4]
    assert drawn.sizes is None


def test_whole_microbatches_are_drawn_by_record_id():
    unit = Microbatches(4)
    drawn = unit.rows_of(np.array([0, 2]), 10, None)
    assert unit.count(10, None) == 3
    assert drawn.rows.tolist() == [0, 1, 2, 3, 8, 9]
    assert drawn.sizes.tolist() == [4, 2]


def test_records_are_grouped_into_microbatches_by_id_not_by_position():
    unit = Microbatches(4, protect="record")
    drawn = unit.rows_of(np.array([1, 4, 5, 9]), 10, None)
    assert drawn.sizes.tolist() == [1, 2, 1]
    assert unit.multiplicity == 2
    assert unit.unit == "record"


def test_all_rows_of_a_user_come_together():
    drawn = Users().rows_of(np.array([0, 2]), 6, USERS)  # users 3 and 9
    assert Users().count(6, USERS) == 3
    assert drawn.rows.tolist() == [1, 4, 5, 3]
    assert drawn.sizes.tolist() == [3, 1]


@pytest.mark.parametrize("ids", [None, USERS[:5]])
def test_users_need_an_id_per_row(ids):
    with pytest.raises(InputError, match="user_ids"):
        Users().count(6, ids)


def test_ids_without_the_user_unit_are_refused():
    with pytest.raises(InputError, match=r"unit=Users\(\)"):
        Records().count(6, USERS)
