"""Questions to the user's account before a deployment: what a stack asks for, and judgements of the answers."""
