"""
Entry point of members: `python -m deeplearning_member`.

    prepare, serve, wait   on an instance of EMR
    train                  in a container of SageMaker
"""

import sys

from deeplearning_member.emr import entry as emr
from deeplearning_member.sagemaker.entry import train


def main(arguments: list[str]) -> int:
    """Run a command, and return the exit status."""
    return train() if arguments == ["train"] else emr.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
