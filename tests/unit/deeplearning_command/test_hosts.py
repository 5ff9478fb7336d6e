"""`deeplearning hosts`: who is in the cluster, and who answers."""

import json

import pytest

from deeplearning_agent.boot.steps import install_command
from tests.unit.deeplearning_command.master_node import run, write_membership

TABLE = """\
HOST                  ROLE    INSTANCE             ADDRESS    GPUS  GENERATION  ANSWERS
deeplearning-worker1  master  i-00000000000000000  10.0.0.9   2     3           yes
deeplearning-worker2  worker  i-00000000000000001  10.0.0.10  2     2           yes
deeplearning-worker3  worker  i-00000000000000002  10.0.0.11  2     0           i-0000000000000000f has its address
deeplearning-worker4  worker  i-00000000000000003  10.0.0.12  2     0           Connection refused

4 nodes of master-of-names, generation 3; 2 respond
"""


@pytest.fixture
def four_hosts(lab, node):
    """Four members, of which one is behind, one is somebody else and one refuses."""
    write_membership(node, 4)
    answers = {9: ("i-00000000000000000", 3), 10: ("i-00000000000000001", 2), 11: ("i-0000000000000000f", 3)}
    cases = "".join(
        f"10.0.0.{last}) echo motd; echo '{json.dumps({'instance_id': instance, 'generation': generation})}' ;;\n"
        for last, (instance, generation) in answers.items()
    )
    refuse = "*) echo Connection refused; exit 255 ;;"
    lab.program(
        0, "ssh", f'for word; do address=$before; before=$word; done\ncase "$address" in\n{cases}{refuse}\nesac'
    )
    return node


def test_the_table_shows_who_answers_and_with_which_generation(four_hosts, capsys):
    assert run(four_hosts, "hosts") == 1
    assert capsys.readouterr().out == TABLE


def test_programs_get_the_same_as_json(four_hosts, capsys):
    assert run(four_hosts, "hosts", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["cluster"], document["generation"]) == ("master-of-names", 3)
    assert document["hosts"][1] == {
        "host": "deeplearning-worker2",
        "role": "worker",
        "instance_id": "i-00000000000000001",
        "address": "10.0.0.10",
        "gpus": 2,
        "generation": 2,
        "answers": "yes",
    }


def test_addresses_alone_ask_nobody(lab, four_hosts, capsys):
    lab.program(0, "ssh", "exit 99")
    assert run(four_hosts, "hosts", "--addresses") == 0
    assert capsys.readouterr().out == "10.0.0.9\n10.0.0.10\n10.0.0.11\n10.0.0.12\n"


def test_the_status_is_0_when_every_node_responds(lab, node, capsys):
    write_membership(node, 1)
    lab.program(0, "ssh", """echo '{"instance_id": "i-00000000000000000", "generation": 3}'""")
    assert run(node, "hosts") == 0
    assert "1 nodes of master-of-names, generation 3; 1 respond" in capsys.readouterr().out
    lab.program(0, "ssh", "echo /usr/local/bin/deeplearning: not found; exit 127")
    assert run(node, "hosts") == 1
    assert "deeplearning: not found" in capsys.readouterr().out


def test_a_worker_lists_the_nodes_and_queries_none_and_prints_the_document_that_the_master_requests(lab, capsys):
    node = lab.node(1)
    install_command(node)
    write_membership(node, 2)
    assert run(node, "hosts") == 0
    captured = capsys.readouterr().out
    assert captured.count("not asked") == 2
    assert captured.endswith("\n2 nodes of master-of-names, generation 3\n")
    assert run(node, "hosts", "--self") == 0
    assert json.loads(capsys.readouterr().out) == {"instance_id": "i-00000000000000001", "generation": 3}
