"""
The Lambda that adjusts the workers' capacity to what launched, and tells the master or the stack.

`policy` is pure; `reconcile` carries it out; `events` reads what wakes the function; `aws` reaches the services.
"""
