"""Faults that strike a rehearsal's groups, and the same as experiments of AWS Fault Injection Service (FIS)."""
