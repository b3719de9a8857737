"""Tables that enter and leave a lake. Knows no transaction."""
