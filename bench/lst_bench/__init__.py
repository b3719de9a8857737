"""LST-Bench W0 and W3 on TPC-DS: queries, data maintenance and OPTIMIZE (Figure 12)."""
