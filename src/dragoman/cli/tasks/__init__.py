"""Commands about tasks: list, get, watch, cancel."""
