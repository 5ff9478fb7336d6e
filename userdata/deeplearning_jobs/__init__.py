"""
Training jobs on a formed cluster: how each launcher starts one, and what becomes of it.

A plan is made from facts alone and says why each part of it is there; only `deeplearning_command` carries one out.
"""
