"""Print a CycloneDX bill of materials of what requirements.lock installs: ``python3 dev.py sbom > sbom.json``.

Names, versions and the hashes of the files that may be installed; no network, no guesses about what is not in the lock.
"""

import hashlib
import json
import re
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    name = re.sub(r"[-_.]+", "-", name).lower()
    files = [{"type": "distribution", "url": f"pkg:pypi/{name}@{version}", "hashes": [_hash(one)]} for one in hashes]
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": files,
    }


def _hash(value: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": value}


def bill(lock: str, project: dict[str, Any]) -> dict[str, Any]:
    """The same lock gives the same bill: its number comes from the lock's hash, and there is no time in it."""
    parts = [component(name, version, re.findall(r"[0-9a-f]{64}", rest)) for name, version, rest in ENTRY.findall(lock)]
    digest = hashlib.sha256(lock.encode()).digest()
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
    }


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print(json.dumps(bill((ROOT / "requirements.lock").read_text(), project), indent=2))


if __name__ == "__main__":
    main()
