"""One module a launcher: what it starts on which host, and why."""
