"""Objects by key: five verbs, their outcomes, and the programs that request them.

Protocol code uses ``effects`` and ``base``; ``runner`` carries effects
out against a backend, with the retries and read-backs of ``readback``. The package
imports nothing of LakeVilla but errors, ids, clock and settings.
"""
