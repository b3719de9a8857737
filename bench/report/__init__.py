"""What is made of results: one page of all, costs in dollars, two revisions beside each other."""
