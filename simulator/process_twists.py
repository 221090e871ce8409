"""What the planted bugs put in the place of what the product does about processes that come to harm."""

from __future__ import annotations

from typing import Any


def crowded(original: Any) -> Any:
    """However many processes died of them, runs and attempts go beside all others."""

    class Crowded(original):  # type: ignore[misc]  # the class is known only when the bug is planted
        def _blocked(self, _run: str) -> bool:
            return False

        async def _until_alone(self, one: Any) -> None:
            one.granted = True
            self._alone.append(one)

    return Crowded
