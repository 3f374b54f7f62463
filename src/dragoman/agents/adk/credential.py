"""What a tool asks for when it needs somebody's credentials."""

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

# What callers need to know of a client to sign in. Its secret is not among it.
_PUBLIC = {"client_id", "auth_uri", "state", "redirect_uri", "audience", "prompt", "nonce"}
# Who the client is stays what the request said, whatever an answer says.
_ISSUED = ("client_id", "client_secret", "redirect_uri", "code_verifier", "code_challenge_method")
_NEEDED = "a credential"


def public_args(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a request as callers may see them: where to sign in, and no secret."""
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
    """What to tell the caller: where to sign in, or what kind of credential is missing."""
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
    """The answer as ADK wants it: the request it made, with the credential in it.

    Callers answer with ADK's AuthConfig, its AuthCredential, or a text: an API key, a token, or the address that
    signing in has led to.

    Raises:
        TypeMismatch: there is no credential in the answer.
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
