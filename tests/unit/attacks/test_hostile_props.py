"""What a prop brings into user data, unit files and shells is refused unless it is plain, and data stays data."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import DataSource, JobEnvironment, NodeImage, Purchase
from deeplearning_cdk.cluster_plan import plan_cluster
from deeplearning_cdk.payload import find_payload
from stacks.context import read_choices

METACHARACTERS = (
    "$(reboot)",
    "`reboot`",
    ";reboot",
    "a b",
    "a\nSETTINGS\nreboot",
    "'",
    '"',
    "\\",
    "a\0",
    "\x1b[2J",
    "é",
    "*",
)
IMAGE = {"login_user": "ubuntu"}
PLACES = {
    "mount_point": lambda text: plan_cluster(mount_point=f"/efs{text}"),
    "file_system_id": lambda text: plan_cluster(file_system_id=f"fs-01234567{text}"),
    "worker_purchase": lambda text: read_choices(
        {"worker_purchase": f"reservation:cr-0123456789abcdef0{text}", "availability_zone": "us-east-1a"}
    ),
    "resource group": lambda text: Purchase.reservation_group(
        f"arn:aws:resource-groups:us-east-1:111122223333:group/a{text}"
    ),
    "image_release": lambda text: plan_cluster(image_release=f"1{text}"),
    "ssh_peer": lambda text: plan_cluster(ssh_peer=f"203.0.113.7/32{text}"),
    "login_user": lambda text: NodeImage.from_ami_id("ami-01234567", login_user=f"ubuntu{text}"),
    "ami_id": lambda text: NodeImage.from_ami_id(f"ami-01234567{text}", **IMAGE),
    "interpreter": lambda text: NodeImage.from_ssm_parameter("/a/b", interpreter=f"/usr/bin/python3{text}", **IMAGE),
    "parameter": lambda text: NodeImage.from_ssm_parameter(f"/a{text}", **IMAGE),
    "data name": lambda text: DataSource(f"train{text}", "bucket", "train.tar"),
    "data bucket": lambda text: DataSource("train", f"bucket{text}", "train.tar"),
    "container": lambda text: JobEnvironment.from_container(f"registry/team/train:1{text}"),
    "stack_name": lambda text: read_choices({"stack_name": f"training{text}"}),
    "tag key": lambda text: read_choices({"tags": f"team{text}=x"}),
}


@pytest.mark.parametrize("text", METACHARACTERS, ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_a_prop_with_a_metacharacter_is_refused_by_name(place, text):
    with pytest.raises(ValueError, match="must"):
        PLACES[place](text)


@pytest.mark.parametrize("place", PLACES)
def test_the_same_prop_without_it_is_taken(place):
    PLACES[place]("")


@given(values=st.dictionaries(st.text(max_size=8), st.text() | st.sampled_from(METACHARACTERS), max_size=4))
def test_settings_reach_a_node_unread_by_any_shell(values):
    text = json.dumps(values)
    start = find_payload("bootstrap.sh").read_text().splitlines()
    opening = next(line for line in start if "<<'SETTINGS'" in line)
    assert opening.endswith("<<'SETTINGS'")  # quoted: the shell expands nothing in it
    script = f"cat <<'SETTINGS'\n{text}\nSETTINGS\n"
    shown = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert shown.stdout == f"{text}\n"
