"""The boot of a node: the steps, its disks, mounts, EFA software and the command for users."""
