"""
IAM's evaluation logic, what each call needs, and which grants the calls of rehearsals use.

Pure: it neither calls AWS nor imports moto. Public evaluators were looked at: the one that knows all operators is
written in TypeScript under the AGPL, Python's libraries expand and lint policies, moto's own looks at actions alone.
"""
