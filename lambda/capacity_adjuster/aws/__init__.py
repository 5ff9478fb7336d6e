"""The AWS services behind the adjuster: Auto Scaling groups, the state table, and its own log lines."""
