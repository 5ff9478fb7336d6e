"""Health of a node and of a cluster: GPUs, disks, network, and the check of all nodes."""
