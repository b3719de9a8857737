"""The destination of dlt: a load package becomes one transaction on a lake.

``lakevilla.dlt`` is the name for users. No other package imports this one, and only this one
imports dlt.
"""
