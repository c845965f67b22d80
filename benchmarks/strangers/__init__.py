"""Features as strangers would add them: nothing in the packages knows of this one, and it may be thrown away.

Each module here is one feature: its code, ``VARIANTS`` of it by name, and ``modify``, which puts a variant into any tree.
``benchmarks/loc_complexity.py`` measures what that takes. A feature that can't do without a change in a module that exists
brings the change as a patch beside it, ``<feature>.patch``, and its lines are counted; there is none.
"""
