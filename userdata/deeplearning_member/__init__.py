"""Member of an EMR cluster: prepares an instance as the agent does, and forms the cluster on the shared file system."""
