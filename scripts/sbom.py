"""Write the software bill of materials of the environment for development to dist/sbom.json.

    python scripts/sbom.py

It is CycloneDX JSON, checked against the schema by the tool that makes it, and names no place on this machine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = ROOT / "dist" / "sbom.json"


def main() -> int:
    """Write the list; 1 where it cannot be made, or the schema refuses it."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    command = [
        str(tool),
        "environment",
        "--validate",
        "--pyproject",
        "packages/holdfast/pyproject.toml",
        "--mc-type",
        "library",
    ]
    made = subprocess.run([*command, ".venv/bin/python"], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if made.returncode:
        return 1
    listed = without_places(json.loads(made.stdout))
    LIST.parent.mkdir(exist_ok=True)
    LIST.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{LIST.relative_to(ROOT)}: {len(listed['components'])} components, CycloneDX {listed['specVersion']}")
    return 0


def without_places(listed: dict[str, Any]) -> dict[str, Any]:
    """The list without references to files of this machine, such as the place of an editable install."""
    for component in (*listed["components"], listed.get("metadata", {}).get("component", {})):
        if found := component.get("externalReferences"):
            component["externalReferences"] = [one for one in found if not one["url"].startswith("file:")]
    return listed


if __name__ == "__main__":
    sys.exit(main())
