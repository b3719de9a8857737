"""One expression language for every engine.

SQL text becomes a tree (``parse``), the tree is tied to a schema (``bind``), and a bound
tree is rendered (``render``; for DuckDB by its engine), evaluated (``evaluate``) or used to
leave files out (``formats.pruning``). Modules are imported one by one, so that ``tree`` stays
free of the parser.
"""
