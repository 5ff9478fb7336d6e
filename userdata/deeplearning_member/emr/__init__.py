"""Instances of an EMR cluster: the bootstrap action's preparation, and the service that follows the membership."""
