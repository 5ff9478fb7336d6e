"""Names and settings that every node of the model has."""

import hashlib
import os
import pwd

from model_clients import URL

from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings, ScriptSettings
from deeplearning_contract.settings import NodeSettings

CLUSTER = "master-of-names"
ROLE_IDS = {NodeRole.MASTER: "AROAMASTERMASTERMAST", NodeRole.WORKER: "AROAWORKERWORKERWORK"}
RUN_SCRIPT = b"#!/bin/sh\ntrain\n"
SCRIPT = ScriptSettings("scripts", "run", hashlib.sha256(RUN_SCRIPT).hexdigest())
USER = pwd.getpwuid(os.getuid()).pw_name


def make_settings(role, *, setup_seconds, has_script):
    """Return the settings of a role's nodes."""
    is_master = role is NodeRole.MASTER
    return NodeSettings(
        cluster=CLUSTER,
        role=role,
        region="eu-west-1",
        state_table="state",
        master_queue_url=f"{URL}master",
        worker_queue_url=f"{URL}worker",
        report_queue_url=f"{URL}report",
        report_sender=ROLE_IDS[NodeRole.WORKER] if is_master else "",
        signal_url="https://signal.example/" if is_master else "",
        login_user=USER,
        file_system=FileSystemSettings("nfs4", "fs-0123.efs.eu-west-1.amazonaws.com:/", "nfsvers=4.1", "/mnt/efs"),
        expected_gpu_count=2,
        packages={},
        setup_seconds=setup_seconds,
        run_script=SCRIPT if has_script else None,
    )
