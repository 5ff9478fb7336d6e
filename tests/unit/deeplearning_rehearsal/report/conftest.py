"""A report of a rehearsal that passed."""

import pytest

CONTRACT = {"DEEPLEARNING_WORKERS_COUNT": "2", "EFS_MOUNT": "/efs"}
NODE = {
    "host": "deeplearning-worker1",
    "role": "master",
    "instance_id": "i-0",
    "address": "10.0.0.5",
    "contract": CONTRACT,
    "checks": {"login shell": True, "systemd unit": True},
}


@pytest.fixture
def report():
    return {
        "verdict": "pass",
        "expected": "trained",
        "reasons": (),
        "stack": {
            "name": "trial",
            "status": "CREATE_COMPLETE",
            "reason": "",
            "resources": {"AWS::SQS::Queue": 3},
            "outputs": {"Login": "aws ssm"},
            "overrides": {},
        },
        "cluster": {
            "has_nodes": True,
            "requested": 2,
            "formed": 2,
            "generation": 1,
            "formation_seconds": 12.5,
            "aws_calls": 40,
            "aws_calls_by_name": {"sqs.ReceiveMessage": 40},
            "aws_calls_by_kind": {"lambda": 12, "master": 8, "worker": 20},
            "aws_call_bound": 60,
            "reason": "",
            "log_calls": 0,
            "log_call_bound": 20,
            "log_lines": {},
            "metrics": {},
        },
        "kubernetes": [],
        "nodes": [NODE],
        "count": None,
        "training": {
            "launcher": "horovod",
            "framework": "torch 1.13",
            "ranks": 2,
            "hosts": ["a", "b"],
            "dataset": "digits",
            "accuracy": 0.97,
            "seconds": 3.2,
        },
        "phases": [
            {"name": "deploy", "start": 0.0, "seconds": 2.0},
            {"name": "train", "start": 2.0, "seconds": 5.0},
        ],
        "run": {"at": "2026-11-26T20:04:30+00:00", "version": "0.1.0", "seed": 4711},
        "stand_ins": [{"name": "nvidia-smi", "replaces": "NVIDIA's tool", "does": "prints GPUs"}],
        "paid_seconds": {"set-up": 30.0, "training": 90.5, "replay": 0.0},
        "peak_memory_mib": 900,
        "timeline": [{"at": 1.0, "lane": "stack", "text": "<b>created</b>"}],
        "case": None,
        "launchers": {},
        "environment": None,
    }
