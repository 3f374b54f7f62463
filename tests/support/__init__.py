"""What tests build again and again: processes, receivers, proxies, scripted servers, clocks, terminals.

tests/conftest.py puts tests/ on the path, so a test imports `from support.server_process import ServerProcess`. The
package is typed, and a part of what the type checker reads.
"""
