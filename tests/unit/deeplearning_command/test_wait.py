"""`deeplearning wait`: ends when every node has what jobs were promised."""

import pytest

from deeplearning_command.main import main
from deeplearning_jobs.hosts.preflight import HostFacts
from deeplearning_node.provision_status import Step
from tests.unit.deeplearning_command.master_node import write_membership

DONE = Step("done", "staged", 8, 8, "bytes")
HALF = Step("running", "downloading", 4, 8, "bytes")
BROKEN = Step("failed", "the archive is corrupt; upload it again", 0, 8, "bytes", final=True)
PASSING = Step("failed", "S3 does not answer", 0, 8, "bytes")


class Rounds:
    """A clock whose every pause is the next round of answers."""

    def __init__(self, lab, node, rounds):
        self.lab, self.node, self.rounds = lab, node, list(rounds)
        self.wait(0)

    def wait(self, seconds):
        steps = self.rounds.pop(0)
        write_membership(self.node, len(steps))
        cases = ""
        for index, step in enumerate(steps):
            if step is not None:
                line = answer(index, step).to_line().strip()
                cases += f"10.0.0.{9 + index}) echo '{line}' ;;\n"
        script = f'for word; do address=$before; before=$word; done\ncase "$address" in\n{cases}'
        self.lab.program(0, "ssh", script + "*) echo refused; exit 255 ;;\nesac")


def answer(index, step):
    return HostFacts(
        instance_id=f"i-{index:017x}",
        gpu_count=2,
        gpu_detail="",
        interface="eth0",
        address=f"10.0.0.{9 + index}",
        generation=3,
        instance_type="g5.12xlarge",
        expected_gpu_count=2,
        network_cards=1,
        efa_cards=0,
        ports=(),
        steps={"data:coco": step},
        environment="",
        jobs=(),
        missing={},
    )


def wait(lab, node, rounds):
    clock = Rounds(lab, node, rounds)
    status = main(["wait"], node.root, node.programs, clock)
    assert clock.rounds == []
    return status


def test_ends_when_the_last_node_is_ready_and_says_each_change_once(lab, node, capsys):
    assert wait(lab, node, [[DONE, HALF], [DONE, HALF], [DONE, DONE]]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "data:coco is running 50 % of 8 bytes on deeplearning-worker2: downloading",
        "data and environment are on every node",
    ]


def test_a_failure_for_good_ends_it_with_the_remedy(lab, node, capsys):
    assert wait(lab, node, [[DONE, BROKEN]]) == 1
    assert "the archive is corrupt; upload it again" in capsys.readouterr().out


def test_a_failure_that_is_tried_again_is_waited_for(lab, node):
    assert wait(lab, node, [[DONE, PASSING], [DONE, DONE]]) == 0


def test_a_node_that_is_silent_is_waited_for_until_it_is_no_member_any_more(lab, node, capsys):
    assert wait(lab, node, [[DONE, DONE, None], [DONE, DONE]]) == 0
    assert "deeplearning-worker3 does not respond: refused" in capsys.readouterr().out


@pytest.mark.parametrize("step", [HALF, PASSING])
def test_it_does_not_end_before_all_is_there(lab, node, step):
    with pytest.raises(IndexError):  # it asks for one more round than there is
        wait(lab, node, [[DONE, step]])
