"""AWS services of the adjuster: Auto Scaling groups, the state table, and its own log lines."""
