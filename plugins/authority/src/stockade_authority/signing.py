"""The two contracts around signatures: who makes them, and whose are trusted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joserfc.jwk import ECKey


class Signer(ABC):
    """Makes ES256 signatures with one key, wherever that key lives.

    A key service takes the place of the key files by being an entry point of the group
    ``stockade.signers`` that the setting ``[plugin.warrant] signer`` names. It is constructed with that
    settings table. Its public key has to be in the keyring, or verifiers do not know it.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @property
    @abstractmethod
    def kid(self) -> str:
        """The name of the key that signs next: 1 to 64 letters, digits, ``-`` and ``_``."""

    @abstractmethod
    def sign(self, data: bytes) -> bytes:
        """The signature over ``data``: r and s, 32 bytes each, big-endian (RFC 7518 §3.4).

        Called in a thread, concurrently; may block for a few seconds. What it raises fails the turn.
        """


class Keys(ABC):
    """Public keys that are trusted. Every answer is quick; `refresh` may take its time."""

    @abstractmethod
    def get(self, kid: str) -> ECKey:
        """The P-256 key of this name.

        Raises `KeyUnknown`; `KeysMissing` when there is no key at all (L47); `KeysUnavailable` or
        `KeysUnsafe` when the keys cannot be had or trusted (L46).
        """

    def due(self) -> bool:
        """Whether `refresh` should be called before `get`."""
        return False

    def refresh(self) -> None:
        """Look for newer keys: blocks, may be called often and from several threads, raises nothing."""
