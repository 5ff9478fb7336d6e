"""
Runs an embedded AWS in a process of its own for the tests; moto's state and patches stay here.

Reads one JSON command a line from standard input; writes one JSON line for each answer and each observation.
"""

import copy
import dataclasses
import json
import sys
import threading
from functools import partial
from pathlib import Path

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, ScalingPace
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.base.message_faults import MessageFaults
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.errors import AssemblyError, RehearsalError

_writing = threading.Lock()


def write(kind, **content):
    """Write a line for the test."""
    with _writing:
        sys.stdout.write(json.dumps({"kind": kind, **content}, default=str) + "\n")
        sys.stdout.flush()


class RecordingHost:
    """Records machines instead of booting them."""

    def boot(self, machine):
        """Tell the test about the machine."""
        write("boot", machine=dataclasses.asdict(machine) | {"user_data": machine.user_data.decode()})

    def power_off(self, instance_id):
        """Tell the test that the machine has ended."""
        write("power_off", instance_id=instance_id)


def observe(observation):
    """Pass an observation on to the test."""
    write("observation", topic=observation.topic, subject=observation.subject, text=observation.text)


def answer(aws, command):
    """Carry out one command."""
    if command["do"] == "deploy":
        aws.deploy(Path(command["assembly"]), change_template=partial(set_size, size=command["size"]))
        return {"endpoint": aws.endpoint, "overrides": aws.overrides}
    if command["do"] == "wait":
        return dataclasses.asdict(aws.wait(command["seconds"]))
    if command["do"] == "report":
        return {
            "calls": dataclasses.asdict(aws.calls()),
            "invocations": [dataclasses.asdict(entry) for entry in aws.invocations()],
            "activities": aws.activities(),
        }
    return {"fail_instance": aws.fail_instance, "send_event": aws.send_event}[command.pop("do")](**command)


def set_size(template, size):
    """Set the size of the workers' group; None: as the template says."""
    changed, listing = copy.deepcopy(template), {}
    for name in ("DesiredCapacity", "MaxSize") if size is not None else ():
        changed["Resources"]["WorkerGroup"]["Properties"][name] = listing[f"WorkerGroup.{name}"] = str(size)
    return changed, listing


def check_metric(namespace, name, dimensions):
    """Take every metric but one."""
    if (namespace, name) == ("Sample", "Unwritten"):
        raise AssemblyError(f"nothing writes {name} by {', '.join(dimensions)}")


def open_cloud(options):
    """Start an embedded AWS with options given as JSON."""
    faults = [
        LaunchFault(**fault | {"ordinals": frozenset(fault["ordinals"]) if "ordinals" in fault else None})
        for fault in options.pop("faults", [])
    ]
    pace = ScalingPace(**options.pop("pace", {}))
    if "message_faults" in options:
        options["message_faults"] = MessageFaults(**options["message_faults"])
    retries = tuple(options.pop("retry_seconds", (60.0, 120.0)))
    aws = EmbeddedAws(
        address="127.0.0.1",
        port=0,
        machines=RecordingHost(),
        observer=observe,
        options=CloudOptions(
            pace=pace,
            faults=faults,
            retry_seconds=retries,
            label_instance=lambda tags, group: tags.get("deeplearning:role", group),
            check_metric=check_metric,
            **options,
        ),
    )
    aws.start()
    return aws


def main():
    """Serve commands until standard input ends."""
    aws = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "open":
                if aws is not None:
                    aws.stop()
                aws = open_cloud(command["options"])
                write("answer", value=None)
            else:
                write("answer", value=answer(aws, command))
        except RehearsalError as error:
            write("error", text=str(error))
    if aws is not None:
        aws.stop()


if __name__ == "__main__":
    main()
