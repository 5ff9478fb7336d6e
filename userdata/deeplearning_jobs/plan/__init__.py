"""The plan of a job: topology, environment variables, scripts and the page that shows them."""
