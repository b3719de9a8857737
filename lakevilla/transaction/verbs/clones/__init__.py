"""What a transaction does to tables that were part of clones: it gives them files of their own."""
