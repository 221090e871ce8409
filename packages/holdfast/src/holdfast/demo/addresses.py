"""Where the services listen; known to the witness that starts them and to the workers that call them."""

from __future__ import annotations

from typing import Final

import msgspec

LOOPBACK: Final = "127.0.0.1"

ENVIRONMENT: Final = "HOLDFAST_DEMO_SERVICES"
"""The environment variable that names the file with a side's addresses."""


class Addresses(msgspec.Struct, frozen=True):
    """One side's services. `http` is the root of the web APIs."""

    http: str
    smtp_port: int
