"""The execution of one transaction's verbs; the modules above have the methods that users call."""
