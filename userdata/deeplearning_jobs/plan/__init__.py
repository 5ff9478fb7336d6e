"""Plan of a job: topology, environment variables, checkpoints and the page that shows them."""
