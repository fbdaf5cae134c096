"""The route passes the contract kit, with a server behind it that sends back what it gets."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stockade.errors import SettingsError
from stockade.testing import RouteContract
from stockade.testing.route.base import Connect, Dialogue
from stockade_acme.route import AcmeRoute


class Echo(ThreadingHTTPServer):
    """Remembers the heads of the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.heads: list[str] = []


class EchoHandler(BaseHTTPRequestHandler):
    server: Echo

    def do_POST(self) -> None:
        self.server.heads.append(str(self.headers))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Http:
    """How a caller speaks to the route."""

    def request(self, key: str, payload: str) -> bytes:
        head = f"POST /echo HTTP/1.1\r\nHost: route\r\nX-Api-Key: {key}\r\nContent-Length: {len(payload)}\r\n\r\n"
        return f"{head}{payload}".encode()

    def answers(self, payload: str, answer: bytes) -> bool:
        head, _, body = answer.partition(b"\r\n\r\n")
        return b" 200 " in head and body == payload.encode()


class TestAcmeRoute(RouteContract):
    dialect = "http"

    @pytest.fixture
    def server(self) -> Iterator[Echo]:
        with Echo() as server:
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            yield server
            server.shutdown()

    @pytest.fixture
    def route(self, server: Echo) -> AcmeRoute:
        return AcmeRoute({"to": f"127.0.0.1:{server.server_port}"})

    @pytest.fixture
    def unconfigured(self) -> AcmeRoute:
        return AcmeRoute({})

    @pytest.fixture
    def dialogue(self) -> Dialogue:
        return Http()

    @pytest.mark.asyncio
    async def test_the_key_goes_no_further(self, connect: Connect, dialogue: Dialogue, server: Echo) -> None:
        call = connect()
        assert await self.ask(call, dialogue, "hello")
        assert len(server.heads) == 1
        assert call.origin.key not in server.heads[0]


@pytest.mark.parametrize("options", [{"to": "nowhere"}, {"to": ":80"}, {"to": 8080}, {"two": "127.0.0.1:80"}])
def test_a_wrong_setting_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        AcmeRoute(options)
