"""The lake as pages of HTML for people: rendered here, readable without a script, and read only."""
