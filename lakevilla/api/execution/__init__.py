"""How the verbs of one transaction are carried out: what its user calls stands above."""
