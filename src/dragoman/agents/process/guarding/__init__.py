"""What runs in the guardian's own process.

It is a package by itself there, named `guarding`: importing the whole of Dragoman would take too long and too much
memory. So it uses the standard library only, as little of that as it can, and imports relatively.
"""
