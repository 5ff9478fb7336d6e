"""A rehearsal has no GPU: what it changes in the settings of the nodes, and what it leaves."""

import copy
import json
import re

import pytest

from deeplearning_contract.document import read_record
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_rehearsal.template import apply_overrides, count_gpus, find_environment, read_literals

ENVIRONMENT = {"kind": "horovod", "file": None, "image": "", "horovod": "0.28.1", "framework": "torch==2.7.1"}


def _template(environment, capability="7.0"):
    hardware = {"worker": {"gpu_count": 8, "compute_capability": capability}}
    settings = {"needs": {"hardware": hardware, "environment": environment}, "table": "TABLE"}
    before, _, after = json.dumps(settings, separators=(",", ":")).partition("TABLE")
    user_data = {"Fn::Base64": {"Fn::Join": ["", ["#!/bin/bash\n", before, {"Ref": "Table"}, after]]}}
    launch = {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": {"UserData": user_data}}}
    return {"Resources": {name: copy.deepcopy(launch) for name in ("MasterTemplate", "WorkerTemplate")}}


def _texts(template):
    data = [resource["Properties"]["LaunchTemplateData"] for resource in template["Resources"].values()]
    return [read_literals(part["UserData"]) for part in data]


def test_the_parameter_of_emrs_bootstrap_action_is_changed_as_user_data_is():
    user_data = _template(ENVIRONMENT)["Resources"]["MasterTemplate"]["Properties"]["LaunchTemplateData"]["UserData"]
    parameter = {"Type": "AWS::SSM::Parameter", "Properties": {"Value": user_data["Fn::Base64"]}}
    action = {"ScriptBootstrapAction": {"Path": "s3://assets/a.sh", "Args": [{"Ref": "Release"}, "us-east-1"]}}
    cluster = {"Type": "AWS::EMR::Cluster", "Properties": {"BootstrapActions": [action]}}
    changed, listing = apply_overrides({"Resources": {"Cluster": cluster, "Release": parameter}}, None, gpus=1)
    assert sorted(listing) == ["environment.framework", "hardware.compute_capability"]
    found = find_environment(changed)
    assert found is not None
    assert found.framework == "torch==2.13.0"


def test_pytorch_becomes_the_one_for_the_cpu_on_every_node_and_the_report_lists_it():
    template = _template(ENVIRONMENT)
    before = copy.deepcopy(template)
    changed, listing = apply_overrides(template, None, gpus=1)
    assert template == before
    assert listing == {
        "environment.framework": "torch==2.13.0, was torch==2.7.1: these nodes have no GPU",
        "hardware.compute_capability": "none, was 7.0: these nodes have no GPU",
    }
    found = find_environment(changed)
    assert found is not None
    assert found.framework == "torch==2.13.0"
    for text in _texts(changed):
        assert '"framework":"torch==2.13.0"' in text
        assert '"compute_capability":""' in text
        assert '"gpu_count":8' in text
    assert _texts(changed)[0].count("torch") == 1
    (join,) = changed["Resources"]["MasterTemplate"]["Properties"]["LaunchTemplateData"]["UserData"].values()
    assert {"Ref": "Table"} in join["Fn::Join"][1]


@pytest.mark.parametrize(
    "template",
    [
        _template(None),
        _template({**ENVIRONMENT, "kind": "requirements"}),
        _template({**ENVIRONMENT, "framework": "torch==2.13.0"}, ""),
        _template({**ENVIRONMENT, "framework": ""}, ""),
        _template({**ENVIRONMENT, "framework": "tensorflow==2.15.1"}, ""),
        {"Resources": {}},
    ],
)
def test_a_template_that_needs_no_gpu_is_unchanged(template):
    assert apply_overrides(template, None, gpus=1) == (template, {})


def test_an_environment_is_read_as_the_nodes_read_it():
    assert find_environment(_template(ENVIRONMENT)) == read_record(EnvironmentSettings, ENVIRONMENT, "environment")
    assert find_environment(_template(None)) is None


def _count(template):
    return [int(found[1]) for text in _texts(template) for found in re.finditer(r'"expected_gpu_count":(\d+)', text)]


@pytest.mark.parametrize(
    ("expected", "shown", "counts", "listing"),
    [
        ((8, 8), 1, [1, 1], {"expected_gpu_count": "1, was 8: so many does the nvidia-smi of the nodes show"}),
        ((0, 8), 2, [0, 2], {"expected_gpu_count": "2, was 8: so many does the nvidia-smi of the nodes show"}),
        ((1, 1), 1, [1, 1], {}),
        ((0, 0), 1, [0, 0], {}),
        ((8, 8), 0, [8, 8], {}),  # --gpus-per-node 0: the driver is missing
    ],
)
def test_nodes_expect_the_gpus_that_the_rehearsal_shows_and_go_on_missing_a_driver(expected, shown, counts, listing):
    template = _template(None)
    for resource, count in zip(template["Resources"].values(), expected, strict=True):
        (join,) = resource["Properties"]["LaunchTemplateData"]["UserData"].values()
        join["Fn::Join"][1][0] += f'"expected_gpu_count":{count},'
    assert count_gpus(template) == max(expected)
    changed, listed = apply_overrides(template, None, gpus=shown)
    assert (_count(changed), listed) == (counts, listing)
