"""How rows are written: as a grid for people, and as text for programs.

``values`` has single values, ``widths`` what fits on a line, ``grid`` the table for people,
``formats`` all forms that can be asked for. Pure functions; they know Arrow, and no lake. Help
is shown without Arrow, so ``look`` and ``values`` do not load it.
"""
