"""Amazon EMR on EC2, with uniform instance groups: clusters whose instances are machines of the lab."""
