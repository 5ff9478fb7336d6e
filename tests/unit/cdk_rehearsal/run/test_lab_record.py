"""A kept rehearsal is found by its record, and one that has ended is known as such."""

import os
from dataclasses import replace

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.machine import make_machine_id
from cdk_rehearsal.run.lab_record import LAB_FILE, LabRecord, read_network, remove_record

RECORD = LabRecord(os.getpid(), read_network(), "http://100.64.0.1:4566", "us-east-1", "training", "key", "secret")


def test_a_record_is_read_as_it_was_written_and_leaves_nothing_beside_it(tmp_path):
    RECORD.write(tmp_path)
    assert LabRecord.read(tmp_path) == RECORD
    assert [path.name for path in tmp_path.iterdir()] == [LAB_FILE]


def test_without_a_record_the_remedy_is_printed(tmp_path):
    remove_record(tmp_path)
    with pytest.raises(UnavailableError, match=r"no rehearsal is kept in .*; run: deeplearning-cdk rehearse --keep"):
        LabRecord.read(tmp_path)


@pytest.mark.parametrize("changes", [{"network": 1}, {"pid": 2**22 + 1}])
def test_a_lab_that_has_ended_is_known_though_its_number_belongs_to_another_process(tmp_path, changes):
    replace(RECORD, **changes).write(tmp_path)
    with pytest.raises(UnavailableError, match=r"the rehearsal of .*lab\.json has ended"):
        LabRecord.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}'])
def test_a_file_that_is_no_record_is_an_error_with_the_remedy(tmp_path, text):
    (tmp_path / LAB_FILE).write_text(text)
    with pytest.raises(UnavailableError, match=r"cannot be read: .*; remove it and rehearse again"):
        LabRecord.read(tmp_path)


def test_a_node_that_does_not_run_is_an_error():
    with pytest.raises(UnavailableError, match="node i-1 must run, it does not"):
        RECORD.find_node("i-1")


def test_machine_ids_are_as_nodes_have_them():
    assert make_machine_id("i-1") == make_machine_id("i-1")
    assert len({make_machine_id(f"i-{number}") for number in range(9)}) == 9
