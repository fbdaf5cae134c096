"""Real warrants for the gateway's tests: a minter, a state root, and callers with a turn."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from stockade.contracts.route import Caller, Origin
from stockade.model.authority import Claims
from stockade_authority.minter import WarrantMinter
from stockade_gateway.accounts import Accounts
from stockade_gateway.config import Upstream
from stockade_gateway.metering import Meter
from stockade_gateway.prices import Prices
from stockade_gateway.rehearsal.script import load
from stockade_gateway.route import ModelRoute
from stockade_gateway.warrants import Warrants

from .conftest import CANARY, KEY, Vendor

PRICES = Prices.model_validate({"models": {"m": {"input": 1_000_000, "output": 10_000_000, "cache_read": 100_000}}})


class Authority:
    """A state root and its minter, and routes that check, count and meter with it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.minter = WarrantMinter({"home": home})

    async def origin(self, *, turn: str = "turn-1", sandbox: str = "sb-1", **claims: Any) -> Origin:
        """A caller whose turn has a warrant with these claims."""
        caller = Caller(user="ann", engine="claude", turn=turn)
        origin = Origin(sandbox=sandbox, session="s", route="model", key=KEY, warranted=True, caller=caller)
        await self.renew(origin, **claims)
        return origin

    async def renew(self, origin: Origin, **claims: Any) -> None:
        """Another warrant for the same turn."""
        base = Claims(origin.sandbox, "s", origin.turn, "ann", "claude", 0, "model", expires=time.time() + 300)
        changed = {**{name: getattr(base, name) for name in base.__slots__}, **claims}
        origin.caller.token = await self.minter.mint(Claims(**changed))

    def route(self, vendor: Vendor | None = None, *, prices: Prices = PRICES, **options: Any) -> ModelRoute:
        """A route to the fake vendor, or of a rehearsal."""
        secret = SecretStr(CANARY)
        upstreams = {}
        if vendor is not None:
            upstreams = {
                "anthropic": Upstream(base_url=vendor.url, key=secret),
                "openai": Upstream(base_url=vendor.url, key=secret),
            }
        return ModelRoute(
            upstreams,
            None if vendor is not None else load("talk"),
            warrants=options.pop("warrants", None) or Warrants(self.home),
            accounts=Accounts(prices, Meter(self.home)),
            **options,
        )

    @property
    def evidence(self) -> Path:
        """Where the lines are."""
        return self.home / "evidence" / "model-calls.jsonl"
