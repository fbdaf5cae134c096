"""The token minter acme of Stockade: opaque tokens, known to the process that minted them."""
