"""Deployment to the first of several regions that has the capacity: the CDK CLI, the journal, and the search."""
