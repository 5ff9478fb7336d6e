"""Props that reach user data, unit files and shells are refused unless they are plain, and data stays data."""

import json
import subprocess
from typing import get_type_hints

import aws_cdk as cdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import DataSource, JobEnvironment, NodeImage, Purchase, TrainingCluster
from deeplearning_cdk.coordination.payload import find_payload
from deeplearning_cdk.props.check import check_prop
from stacks.context import read_choices
from stacks.reader import read_props
from tests.unit.deeplearning_cdk.clusters import plan

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
VPC = {"vpc_id": "vpc-1", "availability_zones": ["us-east-1a"]}


def read(context):
    """Return the props of a context, which a cluster has checked."""
    props = read_props(cdk.Stack(), context)
    hints = get_type_hints(TrainingCluster.__init__, include_extras=True)
    for name, value in props.items():
        check_prop(name, value, hints[name])
    return props


PLACES = {
    "storage.mount_point": lambda text: plan({"storage.mount_point": f"/efs{text}"}),
    "storage.file_system": lambda text: plan({"storage.file_system": f"fs-01234567{text}"}),
    "workers.purchase": lambda text: read({"workers.purchase": f"reservation:cr-0123456789abcdef0{text}"}),
    "resource group": lambda text: Purchase.reservation_group(
        f"arn:aws:resource-groups:us-east-1:111122223333:group/a{text}"
    ),
    "software.image_release": lambda text: plan({"software.image_release": f"1{text}"}),
    "master.ssh_peer": lambda text: plan({"master.ssh_peer": f"203.0.113.7/32{text}"}),
    "login_user": lambda text: NodeImage.from_ami_id("ami-01234567", login_user=f"ubuntu{text}"),
    "ami_id": lambda text: NodeImage.from_ami_id(f"ami-01234567{text}", **IMAGE),
    "interpreter": lambda text: NodeImage.from_ssm_parameter("/a/b", interpreter=f"/usr/bin/python3{text}", **IMAGE),
    "parameter": lambda text: NodeImage.from_ssm_parameter(f"/a{text}", **IMAGE),
    "key_pair": lambda text: read({"key_pair": f"mine{text}"}),
    "prefix list": lambda text: plan({"master.ssh_peer": f"pl-0123abcd{text}"}),
    "network.availability_zone": lambda text: plan({"network.availability_zone": f"us-east-1a{text}"}),
    "encryption_key": lambda text: read({"encryption_key": f"arn:aws:kms:us-east-1:111122223333:key/a{text}"}),
    "alarm_topic": lambda text: read({"alarm_topic": f"arn:aws:sns:us-east-1:111122223333:a{text}"}),
    "root_device": lambda text: NodeImage.from_ssm_parameter("/a", root_device=f"/dev/sda{text}", **IMAGE),
    "packages": lambda text: NodeImage.from_ssm_parameter("/a", packages={"mount.nfs4": (f"nfs{text}",)}, **IMAGE),
    "network.vpc": lambda text: read({"network.vpc": VPC | {"private_subnet_ids": [f"subnet-1{text}"]}}),
    "network.worker_subnet": lambda text: read({"network.vpc": VPC, "network.worker_subnet": f"subnet-1{text}"}),
    "network.security_groups": lambda text: read({"network": {"vpc": VPC, "security_groups": f"sg-1{text}"}}),
    "group of a file system": lambda text: read(
        {"storage.file_system": {"file_system_id": "fs-01234567", "security_group": f"sg-01234567{text}"}}
    ),
    "master.role": lambda text: read({"master.role": f"arn:aws:iam::111122223333:role/a{text}"}),
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


@pytest.mark.parametrize(
    "folder", ["/etc/ssh", "/usr/bin", "/var/lib", "/home", "/home/ubuntu", "/proc/self", "/opt/deeplearning/data"]
)
def test_a_mount_point_that_would_hide_the_system_is_refused(folder):
    with pytest.raises(ValueError, match=r"storage.mount_point must not be or lie in a folder of the system"):
        plan({"storage.mount_point": folder})


@pytest.mark.parametrize("folder", ["/efs", "/data", "/mnt/x", "/srv/x", "/home/ubuntu/efs"])
def test_a_mount_point_beside_the_system_is_taken(folder):
    plan({"workers.instance_type": "m5.large", "storage.mount_point": folder})


@pytest.mark.parametrize("text", ["a\nb", "a\0", "$(reboot)", "`reboot`", ";", "x" * 257])
def test_a_value_of_a_tag_is_plain(text):
    with pytest.raises(ValueError, match="tag team must have at most 256 letters"):
        read_choices({"tags": {"team": text}})


@pytest.mark.parametrize("key", ["deeplearning:cluster", "Deeplearning:role", "aws:x", "AWS:x", ".."])
def test_a_tag_that_is_not_the_users_is_refused(key):
    with pytest.raises(ValueError, match="tag key must"):
        read_choices({"tags": {key: "x"}})


@pytest.mark.parametrize(
    "key", ["../../etc/x.tar", "a/../b/", "./a.tar", "x" * 3000 + ".tar", "a\n.tar", "$(reboot).tar"]
)
def test_a_key_of_data_that_leaves_its_place_or_is_too_long_is_refused(key):
    with pytest.raises(ValueError, match="data key must be a path of at most 1017 printable bytes"):
        DataSource("train", "bucket", key)


@pytest.mark.parametrize("bucket", ["b..b", "192.168.1.1", "xn--a", "a-s3alias", "a--x-s3", "ab", "-ab", "a.-b"])
def test_a_bucket_that_s3_does_not_name_so_is_refused(bucket):
    with pytest.raises(ValueError, match="data bucket must"):
        DataSource("train", bucket)


@pytest.mark.parametrize(
    "script", [b"#!/bin/bash\r\ntrue\r\n", b"#!/bin/bash\n\0", b"#!\ntrue\n", b"#!bash\n", b"true\n", b""]
)
@pytest.mark.parametrize("prop", ["workers.setup_script", "master.run_script"])
def test_a_script_that_linux_would_not_run_is_refused(tmp_path, prop, script):
    path = tmp_path / "script"
    path.write_bytes(script)
    with pytest.raises(ValueError, match=f"{prop} must (begin with #!|end its lines as Linux does)"):
        plan({prop: str(path)})


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
