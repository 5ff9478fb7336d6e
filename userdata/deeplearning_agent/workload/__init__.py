"""What a node runs for its user: set-up and run scripts, provisioning, idle and interruption notices."""
