"""HTTP clients, and the guard that keeps requests to untrusted addresses on the public internet."""
