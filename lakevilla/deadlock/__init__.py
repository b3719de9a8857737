"""Who waits for whom over all tables, and who gives way (design, section 7).

Values in, values out: no store, no clock, no state.
"""
