"""YCSB-LH: the Yahoo cloud serving benchmark on a table of a lake, as the paper has it."""
