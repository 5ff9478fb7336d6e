"""Checks of a booted EMR cluster; its stack runs one bootstrap action, and no step yet."""

import gzip
import json
from functools import partial


def check(run):
    """Run a step, cancel another one, and find the logs of all in S3."""
    emr, s3 = run.client("emr"), run.client("s3")
    identity, bucket = run.stack.outputs["Id"], run.stack.outputs["Bucket"]
    wait_until = partial(run.wait_until, seconds=600)  # it ends a hang, and decides nothing
    primary = next(m for m in run.machines if m.tags["aws:elasticmapreduce:instance-group-role"] == "MASTER")
    core = next(m for m in run.machines if m is not primary)

    def read_log(path):
        body = s3.get_object(Bucket=bucket, Key=f"logs/{identity}/{path}.gz")["Body"].read()
        return gzip.decompress(body).decode()

    for machine in run.machines:
        written = run.execute(machine, ["cat", "/setup-ran"]).stdout
        assert written == "hadoop [one] [two words] no-yarn\n", written
        log = read_log(f"node/{machine.instance_id}/bootstrap-actions/1/stdout")
        assert log == f"set up on {machine.instance_id}\n", log
        assert run.execute(machine, ["sudo", "-n", "id", "-u"], user="hadoop").stdout == "0\n"
    info = json.loads(run.execute(core, ["cat", "/mnt/var/lib/info/job-flow.json"], user="hadoop").stdout)
    assert (info["jobFlowId"], info["masterInstanceId"]) == (identity, primary.instance_id)
    name = f"ip-{primary.address.replace('.', '-')}.ec2.internal"
    assert run.execute(core, ["getent", "hosts", info["masterPrivateDnsName"]]).stdout.split() == [
        primary.address,
        name,
    ]

    nodes = run.execute(primary, ["yarn", "node", "-list"], user="hadoop").stdout.splitlines()
    assert nodes[0] == "Total Nodes:1"
    assert nodes[2].split() == [
        f"ip-{core.address.replace('.', '-')}.ec2.internal:8041",
        "RUNNING",
        f"ip-{core.address.replace('.', '-')}.ec2.internal:8042",
        "0",
    ]

    def state(step):
        return str(emr.describe_step(ClusterId=identity, StepId=step)["Step"]["Status"]["State"])

    def run_step(*arguments):
        config = {"Jar": "command-runner.jar", "Args": list(arguments)}
        step = {"Name": arguments[0], "ActionOnFailure": "CONTINUE", "HadoopJarStep": config}
        return str(emr.add_job_flow_steps(JobFlowId=identity, Steps=[step])["StepIds"][0])

    echo, failing = run_step("bash", "-c", "echo as $(whoami) on $(hostname)"), run_step("no-such-program")
    wait_until(lambda: state(failing) == "FAILED")
    assert state(echo) == "COMPLETED"
    assert read_log(f"steps/{echo}/stdout") == f"as hadoop on ip-{primary.address.replace('.', '-')}\n"
    assert "No such file or directory: 'no-such-program'" in read_log(f"steps/{failing}/controller")

    polite = run_step(
        "bash", "-c", "trap 'echo asked to stop; exit 3' TERM; touch /tmp/waits; while :; do sleep 0.1; done"
    )
    wait_until(lambda: run.execute(primary, ["test", "-e", "/tmp/waits"]).returncode == 0)
    emr.cancel_steps(ClusterId=identity, StepIds=[polite])
    wait_until(lambda: state(polite) == "CANCELLED")
    assert read_log(f"steps/{polite}/stdout") == "asked to stop\n"

    deaf = run_step(
        "bash",
        "-c",
        "trap '' TERM; sleep 1000 & trap 'touch /tmp/heard' TERM; touch /tmp/deaf; while kill -0 $!; do wait $!; done",
    )
    wait_until(lambda: run.execute(primary, ["test", "-e", "/tmp/deaf"]).returncode == 0)
    emr.cancel_steps(ClusterId=identity, StepIds=[deaf])
    wait_until(lambda: run.execute(primary, ["test", "-e", "/tmp/heard"]).returncode == 0)
    assert state(deaf) == "CANCEL_PENDING"
    children = run.execute(primary, ["pgrep", "-u", "hadoop", "sleep"]).stdout
    assert children
    run.execute(primary, ["pkill", "-KILL", "-u", "hadoop"])
    wait_until(lambda: state(deaf) == "CANCELLED")
