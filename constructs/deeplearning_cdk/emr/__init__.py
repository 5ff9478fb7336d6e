"""EMR: a training cluster of EMR instances, its roles, its network rules and its checks."""
