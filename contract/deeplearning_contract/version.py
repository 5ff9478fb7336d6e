"""Version of the project, the same for the wheel, the nodes' programs and the functions."""

VERSION = "0.1.0"
