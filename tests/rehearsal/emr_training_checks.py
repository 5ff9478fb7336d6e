"""Checks of `EmrTraining` on three rehearsed nodes: the contract, the predecessor's loop, and a lost node."""

import json

LOOP = 'while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host hostname ; done 10<$DEEPLEARNING_WORKERS_PATH'
"""As in the predecessor's guide to EMR."""
VARIABLES = ("DEEPLEARNING_WORKERS_COUNT", "DEEPLEARNING_WORKERS_PATH", "DEEPLEARNING_WORKER_GPU_COUNT", "EFS_MOUNT")
SHELLS = {"login shell": "env", "sudo": "sudo -n env"}


def check(run):
    emr = run.client("emr")
    (cluster,) = [entry["Id"] for entry in emr.list_clusters()["Clusters"]]
    run.wait_until(lambda: _states(emr, cluster) == {"metadata": "COMPLETED"}, seconds=240)
    run.wait_until(lambda: emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]["State"] == "WAITING")
    primary = next(m for m in run.machines if m.tags["aws:elasticmapreduce:instance-group-role"] == "MASTER")
    hosts = _lines(run, primary, "cat /opt/deeplearning/workers")
    assert len(hosts) == 3, hosts
    for machine in run.machines:
        assert _lines(run, machine, "cat /opt/deeplearning/workers") == hosts
        assert "/efs" in "".join(_lines(run, machine, "mount"))
        for shell, command in SHELLS.items():
            assert _find_variables(_lines(run, machine, command)) == VARIABLES, shell
    for host in hosts:
        assert _find_variables(_lines(run, primary, f"ssh {host} env")) == VARIABLES, host
    assert _lines(run, primary, "deeplearning hosts")[-1].endswith("; 3 respond")
    names = _lines(run, primary, LOOP)
    assert len(set(names)) == 3, names
    _check_step(run, emr, cluster)
    _check_lost_node(run, primary, hosts)


def _check_step(run, emr, cluster):
    """Run a step as hadoop on the primary, where the contract holds."""
    command = ["bash", "--login", "-c", '[ "$(wc -l < $DEEPLEARNING_WORKERS_PATH)" = 3 ]']
    jar = {"Jar": "command-runner.jar", "Args": command}
    step = {"Name": "count", "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar}
    emr.add_job_flow_steps(JobFlowId=cluster, Steps=[step])
    run.wait_until(lambda: _states(emr, cluster).get("count") == "COMPLETED", seconds=60)


def _check_lost_node(run, primary, hosts):
    """A core node that dies leaves the membership, and its replacement joins with a higher generation."""
    core = next(m for m in run.machines if m.instance_id != primary.instance_id)
    before = _generation(run, primary)
    run.power_off(core)
    run.wait_until(lambda: _generation(run, primary) > before, seconds=240)
    run.wait_until(lambda: len(_lines(run, primary, "cat /opt/deeplearning/workers")) == len(hosts), seconds=240)
    members = json.loads("".join(_lines(run, primary, "cat /opt/deeplearning/membership.json")))["members"]
    assert core.instance_id not in [member["instance_id"] for member in members]


def _find_variables(lines):
    return tuple(name for name in VARIABLES if any(line.startswith(f"{name}=") for line in lines))


def _generation(run, machine):
    return json.loads("".join(_lines(run, machine, "cat /opt/deeplearning/membership.json")))["generation"]


def _states(emr, cluster):
    return {step["Name"]: step["Status"]["State"] for step in emr.list_steps(ClusterId=cluster)["Steps"]}


def _lines(run, machine, command):
    """Run a command in a login shell of hadoop."""
    answer = run.execute(machine, ["su", "--login", "hadoop", "--command", command])
    assert answer.returncode == 0, (command, answer.stdout, answer.stderr)
    return answer.stdout.splitlines()
