"""
Training jobs on a formed cluster: plan, processes, runs.

A plan is a pure function of the hosts' facts and the request, with a reason for each part. `deeplearning_command`
runs it.
"""
