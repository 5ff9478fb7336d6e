"""
The Lambda that adjusts the workers' capacity to what launched, and tells the master or the stack.

`decision.py` holds the policy and is pure; `reconciliation.py` carries it out; `groups.py` and `records.py` reach AWS.
"""
