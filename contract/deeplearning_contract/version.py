"""The version of the project: the wheel, the nodes' programs and the functions carry the same one."""

VERSION = "0.1.0"
