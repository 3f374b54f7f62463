"""Credential requests of ADK tools: what callers may see of them, and how their answers are read."""

from __future__ import annotations

from typing import Any, cast

from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
)
from google.adk.auth.auth_tool import AuthConfig, AuthToolArguments
from pydantic import BaseModel, ValidationError

from dragoman.schema.conversion import TypeMismatch

# OAuth fields that callers need to sign in; the client secret is not among them.
_PUBLIC = {"client_id", "auth_uri", "state", "redirect_uri", "audience", "prompt", "nonce"}
# Client fields that an answer cannot change.
_ISSUED = ("client_id", "client_secret", "redirect_uri", "code_verifier", "code_challenge_method")
_NEEDED = "a credential"


def public_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a credential request without secrets."""
    request = _parse(args)
    if request is None:
        return {}
    config = request.auth_config
    public_config: dict[str, Any] = {"authScheme": _dump(config.auth_scheme)}
    if config.credential_key:
        public_config["credentialKey"] = config.credential_key
    for key, credential in (
        ("rawAuthCredential", config.raw_auth_credential),
        ("exchangedAuthCredential", config.exchanged_auth_credential),
    ):
        if credential is not None:
            public_config[key] = {"authType": credential.auth_type.value}
            if credential.oauth2 is not None:
                public_config[key]["oauth2"] = _dump(credential.oauth2, _PUBLIC)
    message = args.get("message")
    return {
        "functionCallId": request.function_call_id,
        "authConfig": public_config,
        **({"message": message} if isinstance(message, str) else {}),
    }


def question(args: dict[str, Any]) -> str:
    """Return the question for the caller: where to sign in, or which kind of credential is missing."""
    request = _parse(args)
    if request is None:
        return "Credentials are needed."
    oauth = _oauth(request.auth_config)
    if oauth is not None and oauth.auth_uri:
        return f"Sign in at {oauth.auth_uri} and answer with the address that you are sent back to."
    message = args.get("message")
    if isinstance(message, str) and message:
        return message
    return f"{_kind(request.auth_config)} needed."


def _kind(config: AuthConfig) -> str:
    raw = config.raw_auth_credential
    kind = raw.auth_type if raw is not None else None
    return "An API key is" if kind == AuthCredentialTypes.API_KEY else "Credentials are"


def fill_in(args: dict[str, Any], text: str, data: Any) -> dict[str, Any]:
    """Return ADK's response to the request: the request's own config with the credential in it.

    Callers answer with ADK's AuthConfig, its AuthCredential, or text: an API key, a token, or the redirect address
    after signing in.

    Raises:
        TypeMismatch: the answer contains no credential.
    """
    request = _parse(args)
    if request is None:
        raise TypeMismatch(_NEEDED, "The request for credentials cannot be read any more.")
    config = request.auth_config
    if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1 and "result" in data:
        data = cast("dict[str, Any]", data)["result"]
    if isinstance(data, str):
        text, data = data, None
    credential = _from_text(config, text.strip()) if data is None else _from_data(data)
    issued = _oauth(config)
    if credential.oauth2 is not None and issued is not None:
        for field in _ISSUED:
            if getattr(issued, field, None) is not None:
                setattr(credential.oauth2, field, getattr(issued, field))
    return _dump(config.model_copy(update={"exchanged_auth_credential": credential}))


def _from_data(data: Any) -> AuthCredential:
    try:
        credential = AuthConfig.model_validate(data).exchanged_auth_credential
    except (ValidationError, TypeError):
        try:
            credential = AuthCredential.model_validate(data)
        except (ValidationError, TypeError):
            credential = None
    if credential is None:
        raise TypeMismatch(_NEEDED, "What was sent holds no credential.")
    return credential


def _from_text(config: AuthConfig, text: str) -> AuthCredential:
    raw = config.raw_auth_credential
    kind = raw.auth_type if raw is not None else AuthCredentialTypes.API_KEY
    if not text:
        raise TypeMismatch(_NEEDED)
    if kind in (AuthCredentialTypes.OAUTH2, AuthCredentialTypes.OPEN_ID_CONNECT):
        if not text.startswith(("http://", "https://")):
            raise TypeMismatch("the address that you were sent back to")
        oauth = (_oauth(config) or OAuth2Auth()).model_copy(update={"auth_response_uri": text})
        return AuthCredential(auth_type=kind, oauth2=oauth)
    if kind == AuthCredentialTypes.HTTP:
        http = HttpAuth(scheme="bearer", credentials=HttpCredentials(token=text))
        return AuthCredential(auth_type=kind, http=http)
    return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=text)


def _oauth(config: AuthConfig) -> OAuth2Auth | None:
    for credential in (config.exchanged_auth_credential, config.raw_auth_credential):
        if credential is not None and credential.oauth2 is not None:
            return credential.oauth2
    return None


def _parse(args: dict[str, Any]) -> AuthToolArguments | None:
    try:
        return AuthToolArguments.model_validate(args)
    except ValidationError:
        return None


def _dump(model: BaseModel, only: set[str] | None = None) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, include=only)
