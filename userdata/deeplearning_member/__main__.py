"""
Entry point of members: `python -m deeplearning_member`.

    prepare, serve, wait   on an instance of EMR
    train                  in a container of SageMaker
    pod                    in a pod of EKS
"""

import sys

from deeplearning_member.emr import entry as emr
from deeplearning_member.kubernetes.entry import serve
from deeplearning_member.sagemaker.entry import train


def main(arguments: list[str]) -> int:
    """Run a command, and return the exit status."""
    containers = {"train": train, "pod": serve}
    return containers[arguments[0]]() if arguments and arguments[0] in containers else emr.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
