"""`dragoman init`: a new folder with an agent, its test, its settings and a README, from a template."""
