"""The operations of a transaction, and the means to repeat them: records and saved sublogs.

Operations are frozen values that any client can replay on a newer state. ``own_record`` keeps the
record of a transaction, and ``lease`` what was seen of the records of other transactions.
"""
