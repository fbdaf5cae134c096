"""What tokens cost: a TOML file, the one in this package or the user's (``plugin.gateway.prices``)."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade.errors import SettingsError
from stockade_gateway.usage import Tokens

MILLION = 1_000_000
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})\Z")

Rate = Annotated[int, Field(ge=0, le=10**12, strict=True)]


class Rates(BaseModel):
    """Micro-dollars for a million tokens of each kind. What is left out costs as much as ``input``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None

    def cost(self, tokens: Tokens) -> int:
        """Micro-dollars, rounded up."""
        write = self.input if self.cache_write is None else self.cache_write
        hour = write if self.cache_write_1h is None else self.cache_write_1h
        total = (
            tokens.input * self.input
            + tokens.output * self.output
            + tokens.cache_read * (self.input if self.cache_read is None else self.cache_read)
            + (tokens.cache_write - tokens.cache_write_1h) * write
            + tokens.cache_write_1h * hour
        )
        return -(-total // MILLION)

    def at_most(self, tokens: Tokens) -> int:
        """Micro-dollars when the whole prompt is charged at the dearest rate of a prompt."""
        dearest = max(r for r in (self.input, self.cache_read, self.cache_write, self.cache_write_1h) if r is not None)
        return -(-(tokens.prompt * dearest + tokens.output * self.output) // MILLION)


class Long(Rates):
    """Rates of a call whose prompt has more than ``above`` tokens."""

    above: Rate


class Price(Rates):
    """A table ``[models.NAME]``."""

    long: Long | None = None

    def rates(self, prompt: int) -> Rates:
        """Those for a call with so many tokens of prompt."""
        return self.long if self.long is not None and prompt > self.long.above else self


class Prices(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: dict[str, Price]

    def of(self, model: str) -> Price | None:
        """The price of a model; ``None`` when it is not known. A dated name costs what the name without it costs."""
        return self.models.get(model) or self.models.get(_DATE.sub("", model))


@cache
def shipped() -> Prices:
    """Those in this package, read once."""
    return Prices.model_validate(tomllib.loads((files("stockade_gateway") / "prices.toml").read_text()))


def read(path: Path | None) -> Prices:
    """Those of a file, which replaces the shipped one whole. Raises `SettingsError`."""
    if path is None:
        return shipped()
    try:
        return Prices.model_validate(tomllib.loads(path.expanduser().read_text()))
    except OSError as error:
        said = f"{type(error).__name__}: {error.strerror}"
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
    except ValueError as error:
        said = str(error)
    raise SettingsError(
        f"plugin.gateway.prices: {path} is no file of prices: {said}",
        hint="Start from the shipped one: a table a model, in micro-dollars for a million tokens (input, output, …).",
    )
