"""The guard: a helper process that starts programs for the server and kills them when the server ends, even by SIGKILL.

`client` and `spawner` run in the server. The other modules run in the guard process, where this package is imported as
`guard`: importing all of Dragoman would cost too much time and memory. They use as little of the standard library as
possible, and relative imports only.
"""
