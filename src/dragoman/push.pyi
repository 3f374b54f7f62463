from dragoman.client.webhook import verify as verify
from dragoman.keys.errors import BadSignature as BadSignature

__all__ = ["BadSignature", "verify"]
