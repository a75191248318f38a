"""A network between processes of one machine that has a delay and a bandwidth, where the kernel has no `netem`.

    near address 10.9.0.1  <── TUN device ──>  this program  <── TUN device ──>  far address 10.9.1.1

Everything happens in a network namespace of its own. Whatever is sent to the far address comes to this program as
packets, waits here, and goes back with its addresses turned around, so that it arrives at the near one: every process
reaches every other one through the far address, and all of them listen on the same machine. Each sender, told by its
port, has a cable of its own. Turning the addresses leaves checksums as they were, since these are sums.

Needs root, `ip` (iproute2) and /dev/net/tun. The forwarding takes CPU time from the programs that are measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FAR = "10.9.1.1"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_MTU = 65_000
_QUEUE = 10_000


def bits_per_second(text: str) -> float:
    """`1gbit` or `500mbit` as a number; none gives infinity."""
    if not text:
        return float("inf")
    match = re.fullmatch(r"([\d.]+)([kmg]?)bit", text.lower())
    if match is None:
        sys.exit(f"--rate is a number and kbit, mbit or gbit, such as 1gbit, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


@contextlib.contextmanager
def slow_network(latency: float, rate: str) -> Iterator[list[str]]:
    """A namespace with the network; gives what to write before a command to run it there.

    Args:
        latency: Milliseconds that a round trip takes longer.
        rate: Bandwidth of each sender, such as `1gbit`; empty for no limit.
    """
    bits_per_second(rate)
    name = f"easyrec-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    forward = None
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        command = [*inside, sys.executable, str(Path(__file__).resolve()), str(latency), rate]
        forward = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if forward.stdout is None or not forward.stdout.readline():
            sys.exit("the slow network did not start")
        yield inside
    finally:
        if forward is not None:
            forward.kill()
            forward.wait()
        subprocess.run(["ip", "netns", "delete", name], check=True)


def main() -> None:
    """Forwards packets until its standard input is closed."""
    delay, rate = float(sys.argv[1]) / 2e3, bits_per_second(sys.argv[2])
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"slow", _IFF_TUN | _IFF_NO_PI))
    for command in (
        "ip addr add 10.9.0.1/24 dev slow",
        f"ip link set slow mtu {_MTU} txqueuelen {_QUEUE} up",
        f"ip route add {FAR}/32 dev slow",
    ):
        subprocess.run(command.split(), check=True)
    print("ready", flush=True)
    waiting: list[tuple[float, int, bytes]] = []
    free: dict[bytes, float] = {}
    count = 0
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            with contextlib.suppress(BlockingIOError, OSError):  # TCP sends again what is lost
                os.write(device, heapq.heappop(waiting)[2])
        rest = waiting[0][0] - time.monotonic() if waiting else None
        ready, _, _ = select.select([device, 0], [], [], None if rest is None else max(0.0, rest))
        if 0 in ready:
            return
        with contextlib.suppress(BlockingIOError):
            while device in ready:
                packet = os.read(device, 1 << 17)
                if packet[0] >> 4 != 4:
                    continue
                source, target = packet[12:16], packet[16:20]
                # 10.9.0.x -> 10.9.1.y becomes 10.9.1.x -> 10.9.0.y.
                turned = source[:2] + target[2:3] + source[3:] + target[:2] + source[2:3] + target[3:]
                cable = packet[20:22]
                now = time.monotonic()
                free[cable] = max(now, free.get(cable, 0.0)) + 8 * len(packet) / rate
                count += 1
                heapq.heappush(waiting, (free[cable] + delay, count, packet[:12] + turned + packet[20:]))


if __name__ == "__main__":
    main()
