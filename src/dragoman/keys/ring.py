"""The secrets of one server, with rotation: the first encrypts and signs, the others still decrypt and verify."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.keys.sealing import Sealer
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.keys.signer import Signer

MIN_CHARACTERS = 16
MAX_FILE = 64 * 1024
_GENERATED_PREFIX = "dk1_"
_GENERATED = re.compile(rf"{_GENERATED_PREFIX}[A-Za-z0-9_-]{{43}}")
# Changing any of these changes all keys: existing data could not be decrypted any more.
_SALT = b"dragoman key ring 1"
_INFO = b"dragoman/1/"
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**14, 8, 1


class KeyRing:
    """One or more secrets, newest first, and the keys derived from them. Its repr holds no secret."""

    def __init__(self, values: Iterable[str], source: str = "the key ring") -> None:
        """Create a key ring of secrets, newest first. `source` names them in errors.

        Raises:
            ConfigError: there is no secret, or one of them is too short.
        """
        texts = list(dict.fromkeys(values))
        if not texts:
            raise ConfigError(f"{source} is empty: it needs {MIN_CHARACTERS} characters or more")
        for place, text in enumerate(texts, 1):
            if len(text) < MIN_CHARACTERS:
                which = f", secret {place} of {len(texts)}," if len(texts) > 1 else ""
                raise ConfigError(
                    f"{source}{which} has {len(text)} characters: it needs {MIN_CHARACTERS} or more; "
                    'python -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one'
                )
        self._masters = tuple(_master(text) for text in texts)
        self._sealers: dict[str, Sealer] = {}
        self._signer: Signer | None = None

    @classmethod
    def from_text(cls, text: str) -> KeyRing:
        """Read the setting `secret`: one secret, or several separated by commas, newest first.

        Raises:
            ConfigError: one of them is too short; the text does not contain it.
        """
        return cls((each.strip() for each in text.split(",")), "the setting secret")

    @classmethod
    def from_file(cls, path: str | Path) -> KeyRing:
        """Read the key file, one secret per line, newest first; create it if it is missing.

        Several processes may do so at once: all of them get the same secret.

        Raises:
            ConfigError: other users can read the file, it cannot be read or created, or a secret in it is too short.
        """
        path = Path(path)
        text = _read_file(path)
        if text is None:
            _create_file(path)
            text = _read_file(path)
        if text is None:
            raise ConfigError(f"{path} was removed as soon as it was created")
        return cls((line.strip() for line in text.splitlines() if line.strip()), f"the key file {path}")

    @classmethod
    def random(cls) -> KeyRing:
        """Create a key ring with a random secret, for stores in memory."""
        return cls([_new_secret()])

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self)}>"

    def __len__(self) -> int:
        return len(self._masters)

    def __reduce__(self) -> str:
        raise TypeError("a KeyRing cannot be pickled: it would write its secrets")

    def subkeys(self, purpose: str, length: int = 32) -> tuple[bytes, ...]:
        """Derive one key per secret for a purpose, newest first. It reveals nothing of the secret or of other keys."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = _INFO + purpose.encode()
        return tuple(HKDF(SHA256(), length, _SALT, info).derive(master) for master in self._masters)

    def seal(self, purpose: str, data: bytes, *, now: float | None = None) -> bytes:
        """Encrypt with the newest secret. The result is ASCII that fits into a cookie, a URL or a column.

        Data sealed for one purpose cannot be unsealed for another. Keys are cached by purpose, so purposes must be
        constants. `now` is in seconds since 1970.
        """
        return self._sealer(purpose).seal(data, now)

    def unseal(self, purpose: str, sealed: bytes, *, max_age: float | None = None, now: float | None = None) -> bytes:
        """Decrypt with any of the secrets. `now` is in seconds since 1970, by default the system's time.

        Raises:
            BadSeal: it was changed, is older than `max_age` seconds, or was sealed elsewhere or for another purpose.
        """
        return self._sealer(purpose).unseal(sealed, max_age, now)

    def signer(self) -> Signer:
        """Return the signer with the key pairs derived from the secrets."""
        if self._signer is None:
            from dragoman.keys.signer import Signer

            self._signer = Signer(self)
        return self._signer

    def _sealer(self, purpose: str) -> Sealer:
        sealer = self._sealers.get(purpose)
        if sealer is None:
            sealer = self._sealers[purpose] = Sealer(self.subkeys(f"seal/{purpose}"))
        return sealer


def _master(text: str) -> bytes:
    # A generated secret is random. One that a person chose could be guessed from the public keys derived from it,
    # so guessing is made slow.
    if _GENERATED.fullmatch(text):
        return text.encode()
    return hashlib.scrypt(
        text.encode(errors="surrogatepass"), salt=_SALT, n=_SCRYPT_N, r=_SCRYPT_R, p=_SCRYPT_P, dklen=32
    )


def _new_secret() -> str:
    return _GENERATED_PREFIX + secrets.token_urlsafe(32)


def _read_file(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(f"other users of this machine can use the key file {path}: chmod 600 {path}")
            return file.read(MAX_FILE).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the key file {path} is not text") from None


def _create_file(path: Path) -> None:
    """Create the file atomically, and never over one that another process has created meanwhile."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as writing:
                part.chmod(0o600)  # the umask may have removed bits
                writing.write(f"{_new_secret()}\n".encode())
                writing.flush()
                os.fsync(writing.fileno())
            path.hardlink_to(part)
        except FileExistsError:
            pass
        finally:
            part.unlink()
        sync_folder(path.absolute().parent)  # data sealed with a lost key would be lost too
    except OSError as error:
        raise ConfigError(
            f"the key file {path} cannot be made: {error.strerror}: make it by hand, or set DRAGOMAN_SECRET"
        ) from None


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of new files survive a power loss."""
    if os.name != "posix":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
