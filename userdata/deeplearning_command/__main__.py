"""`python3 -m deeplearning_command`: the command on a machine without an agent."""

import sys

from deeplearning_command.main import main

sys.exit(main(sys.argv[1:]))
