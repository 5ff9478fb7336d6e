"""Actions of the commands' tests on the node of the `node` fixture."""

import json

from deeplearning_command.main import main

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"


def run(node, *arguments):
    return main(arguments, node.root, node.programs)


def write_membership(node, count, generation=3):
    members = [
        {
            "host": f"deeplearning-worker{index + 1}",
            "instance_id": f"i-{index:017x}",
            "address": f"10.0.0.{9 + index}",
            "gpu_count": 2,
            "host_key": f"{KEY}{index}",
        }
        for index in range(count)
    ]
    path = node.path("/opt/deeplearning/membership.json")
    path.write_text(json.dumps({"cluster": "c", "generation": generation, "members": members}))
