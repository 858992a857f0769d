import numpy as np
import pytest

from tacit.errors import InputError
from tacit.sampling import Microbatches, Records, Users
from tacit.sampling.units import check_ids

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


IDS = np.array([9, 2, 3, 8, 0])


@pytest.mark.parametrize("left", [[1, 2, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3]])
def test_declared_ids_keep_their_companions_whoever_leaves(left):
    def companions(ids):
        unit = Microbatches(2, protect="record")
        drawn = unit.rows_of(np.arange(len(ids)), len(ids), ids)
        ends = np.cumsum(drawn.sizes)
        return [set(ids[drawn.rows[end - size : end]].tolist()) for end, size in zip(ends, drawn.sizes, strict=True)]

    assert companions(IDS) == [{0}, {2, 3}, {8, 9}]
    gone = {int(i) for i in IDS} - {int(IDS[row]) for row in left}
    assert companions(IDS[left]) == [rest for rest in ({0} - gone, {2, 3} - gone, {8, 9} - gone) if rest]


def test_whole_microbatches_by_declared_ids():
    unit = Microbatches(2)
    assert unit.count(5, IDS) == 3
    drawn = unit.rows_of(np.array([0, 2]), 5, IDS)
    assert drawn.rows.tolist() == [4, 0, 3]
    assert drawn.sizes.tolist() == [1, 2]


def test_row_numbers_are_ids_only_where_nobody_can_leave():
    unit = Microbatches(2, protect="record")
    with pytest.raises(InputError, match="record_ids"):
        check_ids(unit, "add_remove", None)
    check_ids(unit, "add_remove", IDS)
    check_ids(unit, "replace_one", None)
    check_ids(Microbatches(2), "add_remove", None)  # a whole microbatch that leaves shifts whole ones


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
