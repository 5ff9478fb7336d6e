"""
Lambda function that adjusts the workers' capacity to what launched, and notifies the master or the stack.

`policy` is pure; `reconcile` applies it; `events` reads the function's events; `aws` calls the services.
"""
