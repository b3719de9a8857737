"""The operations of a transaction, and the means to repeat them: records and saved sublogs.

Operations are frozen values that any client can perform again on a newer state. ``own_record``
keeps the record of a transaction; ``lease`` notes when records of other transactions have changed.
"""
