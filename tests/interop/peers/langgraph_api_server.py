"""langgraph-api's own A2A endpoint: a graph with a scripted model, on the in-memory server.

Runs in the environment of tests/interop/peers/langgraph-api.txt:  langgraph_api_server.py [PORT]
"""
