"""Fetches the JavaScript libraries of the console from npm again: `python tests/console/vendored.py` (`make vendor`).

Their files are as npm has them, but for the names in their import statements: browsers find no package by its name, and
an import map would be inline code, which the page's content security policy refuses. `vendor.json` has the versions,
npm's own digests of the packages, and the digests of the files before and after; the test suite checks the latter.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src/dragoman/console/static/vendor"
MANIFEST = FOLDER / "vendor.json"
# Package, its file, and the name that the file has here.
FILES = (
    ("preact", "dist/preact.mjs", "preact.js"),
    ("preact", "hooks/dist/hooks.mjs", "hooks.js"),
    ("htm", "dist/htm.module.js", "htm.js"),
    ("@preact/signals-core", "dist/signals-core.module.js", "signals-core.js"),
    ("@preact/signals", "dist/signals.module.js", "signals.js"),
)
IMPORTS = {"preact": "./preact.js", "preact/hooks": "./hooks.js", "@preact/signals-core": "./signals-core.js"}


def rewrite(text: str) -> str:
    """Return the code with imports of the files here, and without the address of a source map that is not here."""
    for name, file in IMPORTS.items():
        text = text.replace(f'from"{name}"', f'from"{file}"')
    return text.partition("//# sourceMappingURL=")[0].rstrip() + "\n"


def digest(content: bytes) -> str:
    """Return the SHA-256 digest of a file."""
    return hashlib.sha256(content).hexdigest()


def fetch(package: str, version: str, folder: Path) -> tuple[Path, str]:
    """Fetch a package with npm. Returns its folder, and the digest of the package in the form that npm publishes."""
    packed = subprocess.run(
        ["npm", "pack", "--json", f"{package}@{version}"], cwd=folder, check=True, capture_output=True, text=True
    )
    archive = folder / json.loads(packed.stdout)[0]["filename"]
    target = folder / archive.stem
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    integrity = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    return target / "package", f"sha512-{integrity}"


def main(versions: dict[str, str]) -> None:
    """Fetch all libraries: those named in the arguments in the newest version, the others in that of the manifest."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, dict[str, object]] = {}
    licenses: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for package in dict.fromkeys(package for package, _, _ in FILES):
            source, integrity = fetch(package, versions.get(package, "latest"), Path(temporary))
            version = json.loads((source / "package.json").read_text())["version"]
            files: dict[str, dict[str, str]] = {}
            for owner, path, name in FILES:
                if owner == package:
                    original = (source / path).read_text()
                    (FOLDER / name).write_text(rewrite(original))
                    files[name] = {
                        "from": path,
                        "sha256_there": digest(original.encode()),
                        "sha256": digest((FOLDER / name).read_bytes()),
                    }
            manifest[package] = {"version": version, "integrity": integrity, "files": files}
            licenses.append(f"{package} {version}\n\n{(source / 'LICENSE').read_text().strip()}\n")
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")
    (FOLDER / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(licenses))


if __name__ == "__main__":
    known = (
        {name: entry["version"] for name, entry in json.loads(MANIFEST.read_text()).items()}
        if MANIFEST.exists()
        else {}
    )
    main({name: version for name, version in known.items() if name not in sys.argv[1:]})
