"""Cost of a stack before its deployment: prices with their dates, a rule for each type of resource, and the totals."""
