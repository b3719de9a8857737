"""Transactions that others do the work of: they travel as bytes, and their files are written apart.

It may import the verbs, and no verb imports it.
"""
