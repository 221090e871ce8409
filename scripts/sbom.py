"""Write software bills of materials of the environment for development, and of each distribution in it, to dist/.

    python scripts/sbom.py

`sbom.json` lists the whole environment. `sbom-beforehand.json` and `sbom-beforehand-console.json` list what each
distribution requires, with all its extras. All are CycloneDX JSON, checked against the schema by the tool that makes
them, and name no place on this machine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "dist"
DISTRIBUTIONS: Final = ("beforehand", "beforehand-console")


def main() -> int:
    """Write the lists; 1 where one cannot be made, or the schema refuses it."""
    PLACE.mkdir(exist_ok=True)
    for name in DISTRIBUTIONS:
        listed = environment_of(name)
        if listed is None:
            return 1
        if name == DISTRIBUTIONS[0]:
            write("sbom.json", listed)
        write(f"sbom-{name}.json", required(listed))
    return 0


def environment_of(name: str) -> dict[str, Any] | None:
    """All that the environment holds, with this distribution as the main component."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    project = f"packages/{name}/pyproject.toml"
    command = [str(tool), "environment", "--validate", "--pyproject", project, "--mc-type", "library"]
    made = subprocess.run([*command, ".venv/bin/python"], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    return None if made.returncode else without_places(json.loads(made.stdout))


def required(listed: dict[str, Any]) -> dict[str, Any]:
    """The same list with only what its main component requires, directly or not."""
    needs = {one["ref"]: one.get("dependsOn", []) for one in listed["dependencies"]}
    found: set[str] = set()
    left = [listed["metadata"]["component"]["bom-ref"]]
    while left:
        if (ref := left.pop()) not in found:
            found.add(ref)
            left.extend(needs.get(ref, []))
    components = [one for one in listed["components"] if one["bom-ref"] in found]
    return {
        **listed,
        "components": components,
        "dependencies": [one for one in listed["dependencies"] if one["ref"] in found],
    }


def without_places(listed: dict[str, Any]) -> dict[str, Any]:
    """The list without references to files of this machine, such as the place of an editable install."""
    for component in (*listed["components"], listed.get("metadata", {}).get("component", {})):
        if found := component.get("externalReferences"):
            component["externalReferences"] = [one for one in found if not one["url"].startswith("file:")]
    return listed


def write(name: str, listed: dict[str, Any]) -> None:
    """Write one list, and say how long it is."""
    (PLACE / name).write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"dist/{name}: {len(listed['components'])} components, CycloneDX {listed['specVersion']}")


if __name__ == "__main__":
    sys.exit(main())
