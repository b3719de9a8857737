"""Steps 4 and 5 for many: those who wait for HEAD at the same time go in one replacement."""
