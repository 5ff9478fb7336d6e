"""Jobs: `submit`, `jobs`, `stop` and `plan`, and the output of a job for `logs`."""
