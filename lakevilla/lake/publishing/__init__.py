"""What HEAD has decided is brought into the tables' logs. Knows no transaction."""
