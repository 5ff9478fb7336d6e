"""
What a job needs beside a formed cluster: its data and its software environment, brought to the nodes while they form.
"""
