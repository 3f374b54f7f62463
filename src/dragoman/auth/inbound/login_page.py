"""The page where people sign in: one form, nothing from elsewhere, nothing that runs."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

_STYLE = (
    "body{font:16px system-ui,sans-serif;max-width:20rem;margin:15vh auto;padding:0 1rem}"
    "label{display:block;margin:1rem 0 .25rem}input{width:100%;box-sizing:border-box;padding:.5rem;font:inherit}"
    "button{margin-top:1.5rem;padding:.5rem 1.5rem;font:inherit}p[role=alert]{color:#b00020}"
)
_DIGEST = b64encode(sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Sign in</title><style>{style}</style><body>{body}</body></html>"
)
_SIGN_IN = (
    '<h1>Sign in</h1>{problem}<form method="post" action="login"><input type="hidden" name="csrf" value="{token}">'
    '<input type="hidden" name="next" value="{next}">'
    '<label for="name">Name</label><input id="name" name="name" autocomplete="username" required autofocus>'
    '<label for="password">Password</label><input id="password" name="password" type="password" '
    'autocomplete="current-password" required><button>Sign in</button></form>'
)
_SIGNED_IN = (
    "<h1>Signed in</h1><p>You are {name}.</p>"
    '<form method="post" action="logout"><input type="hidden" name="csrf" value="{token}">'
    "<button>Sign out</button></form>"
)


def sign_in_page(token: str, next_path: str, problem: str = "") -> bytes:
    """The form; `problem` says why the last try failed."""
    said = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return _page(_SIGN_IN.format(problem=said, token=escape(token), next=escape(next_path)))


def signed_in_page(name: str, token: str) -> bytes:
    """What those see who are signed in, with a button to sign out."""
    return _page(_SIGNED_IN.format(name=escape(name), token=escape(token)))


def _page(body: str) -> bytes:
    return _PAGE.format(style=_STYLE, body=body).encode()
