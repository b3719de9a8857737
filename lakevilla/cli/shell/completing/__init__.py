"""What may stand at the cursor: a pure function of the text around it and the names of a lake."""
