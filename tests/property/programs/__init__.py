"""Run random programs of verbs: LakeVilla, other clients and an oracle keep the same rows.

``drawing`` draws the steps of a program (``steps``) from a seed. ``running`` performs each step by
its actor (``actors``: LakeVilla, deltalake, pyiceberg, Spark), and applies it to the rows that the
tables must hold (``oracle``). After each step all readers (``readers``) have to agree with these.
``python -m tests.property.programs SEED`` repeats a seed and makes its program shorter.
"""
