"""Pods of a job on EKS: they meet, one that is replaced joins again, and that of index 0 runs the job."""
