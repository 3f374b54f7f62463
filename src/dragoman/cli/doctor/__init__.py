"""`dragoman doctor`: checks of an agent, of the store, the settings and the machine."""
