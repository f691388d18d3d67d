"""Accounting: who held how many GPUs for how long, by the queue's own records.

What runs in the cluster is `records`, `book`, `store`, `recorder` and `__main__`: standard library
only.
"""
