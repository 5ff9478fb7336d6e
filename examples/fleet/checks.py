"""Checks of the fleet after its stack completes; `cdk-rehearse cdk.out --check checks.py` calls them."""

from cdk_rehearsal import Run

SIZE = 2


def check(run: Run) -> None:
    """Check that both serve, and that a terminated instance is replaced by one that serves."""
    assert len(run.machines) == SIZE
    for machine in run.machines:
        assert run.execute(machine, ["systemctl", "is-active", "web"], user="ec2-user").stdout == "active\n"
    first = run.machines[0]
    run.power_off(first)
    run.wait_until(lambda: len(run.machines) == SIZE and first not in run.machines)
    for machine in run.machines:
        run.wait_until(lambda machine=machine: run.execute(machine, ["curl", "-sf", "localhost:8080"]).returncode == 0)
