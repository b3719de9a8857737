"""Steps 4 and 5 for many: transactions that wait for HEAD at the same time share a replacement."""
