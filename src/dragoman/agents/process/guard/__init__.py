"""The guard: a process that starts programs for this one, and ends them when this one goes, however it goes.

`guardian` is the server's side. The other modules run in the guard's own process, where this package is called `guard`:
importing the whole of Dragoman would take too long and too much memory. So they use the standard library only, as
little of that as they can, and import relatively.
"""
