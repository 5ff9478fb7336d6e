"""Remote hosts: commands on many nodes at once over SSH, and the survey before a job."""
