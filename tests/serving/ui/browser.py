"""A headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--window-size=1400,1000",
    "--remote-debugging-port=0",
)


class Page:
    """One tab. What it asks for and what goes wrong in it is kept.

    Attributes:
        asked: Addresses of all requests.
        faults: Exceptions and messages of the console that say error.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.asked: list[str] = []
        self.faults: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def open(self, address: str) -> None:
        self.command("Page.navigate", url=address)

    def read(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.read(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression} is never true; {self.faults}"
            time.sleep(0.05)

    def texts(self, selector: str) -> list[str]:
        """Texts of elements."""
        return self.read(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.innerText)"
        )

    def click(self, selector: str) -> None:
        self.read(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, selector: str, text: str) -> None:
        """Sets a field as a person does who types and leaves it."""
        self.read(
            f"{{const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(text)};"
            "field.dispatchEvent(new Event('change', {bubbles: true})); true}"
        )

    def screenshot(self, path: Path) -> None:
        """The visible part as PNG."""
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.asked.append(parameters["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.faults.append(str(parameters["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.faults.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")


@contextmanager
def open_browser(program: str, folder: Path) -> Iterator[Page]:
    """A tab of a new browser, which ends with it.

    Args:
        program: Chromium.
        folder: An empty folder for what the browser keeps.
    """
    process = subprocess.Popen(
        [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(folder / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
            [target] = [one for one in json.load(answer) if one["type"] == "page"]
        with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        if file.exists() and (lines := file.read_text().splitlines()):
            return lines[0]
        assert process.poll() is None, "the browser ended"
        time.sleep(0.05)
    raise AssertionError("the browser does not answer")
