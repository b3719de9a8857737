"""CAB-LH: the Cloud Analytics Benchmark's query streams on TPC-H, as the paper has it."""
