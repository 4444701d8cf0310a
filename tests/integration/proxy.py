"""A TCP proxy whose traffic can be cut or delayed, in each direction and for each of the processes that connect through
it.

    proxy = Proxy(lambda: target_port)
    proxy.address                                   # "127.0.0.1:port"; a daemon's --coordinator or --advertise
    proxy.cut("up", "down")                         # up: from the connecting process to the target
    proxy.cut("up", whose={pid, ...})               # only the connections of these processes
    proxy.delay(0.1)                                # seconds, each way
    proxy.heal()

A cut link is silent, like that of a network: nothing is refused, nothing is closed, new connections receive nothing.
Data that was sent is delivered when the link is healed, if both ends are still there.
"""

import asyncio
import os
import socket
import threading
import time


def sockets_of(pid):
    """The inodes of the process' sockets, as the kernel writes them."""
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # the process ended
    return found


def tcp_table():
    """(local port, remote port, state, inode) of every TCP socket; state 0A is listening. gRPC's sockets are IPv6
    sockets that also accept IPv4."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(path):
            continue
        with open(path) as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                yield *(int(field.rsplit(":", 1)[1], 16) for field in fields[1:3]), fields[3], fields[9]


def listening_port(pid):
    own = sockets_of(pid)
    return next((port for port, _, state, inode in tcp_table() if state == "0A" and inode in own), None)


def owner_of(local, remote):
    """The process that holds the socket between these two ports; None if it is closed. Both ports are needed: the
    system may use a local port for several connections with different destinations."""
    inode = next((i for here, there, _, i in tcp_table() if (here, there) == (local, remote) and i != "0"), None)
    return inode and next((int(pid) for pid in os.listdir("/proc") if pid.isdigit() and inode in sockets_of(pid)), None)


class Proxy:
    def __init__(self, target_port):
        self.target_port = target_port
        self.down_cut = self.up_cut = False
        self.whose = None  # pids; None: all
        self.seconds = 0.0
        self.bytes = {"up": 0, "down": 0}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    # ---- from the test's thread ----

    def cut(self, *directions, whose=None):
        self.whose = whose
        self.up_cut, self.down_cut = "up" in directions, "down" in directions

    def delay(self, seconds):
        self.seconds = seconds

    def heal(self):
        self.up_cut = self.down_cut = False
        self.seconds = 0.0

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    # ---- in the proxy's thread ----

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.connection, sock=self.listener))
        self.loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    async def connection(self, reader, writer):
        # Determined once: data that a process sent before it closed its end is held back too. The table is read while
        # it changes, so a single look may miss a line.
        peer = writer.get_extra_info("peername")[1]
        owner = next(filter(None, (owner_of(peer, self.port) for _ in range(5))), None)
        if owner is None:  # it has disconnected
            writer.transport.abort()
            return
        try:
            out_reader, out_writer = await asyncio.open_connection("127.0.0.1", self.target_port())
        except (OSError, TypeError):  # nothing listens there
            writer.transport.abort()
            return
        pumps = [
            asyncio.ensure_future(self.pump("up", owner, reader, out_writer)),
            asyncio.ensure_future(self.pump("down", owner, out_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
            out_writer.transport.abort()

    def is_cut(self, direction, owner):
        return (self.up_cut if direction == "up" else self.down_cut) and (self.whose is None or owner in self.whose)

    async def pump(self, direction, owner, reader, writer):
        """Ends when either side is gone. A client that gives up on a silent link is seen when the link is healed."""
        arrived = asyncio.Queue(64)  # (time at which to forward it, data)

        async def forward():
            while True:
                when, data = await arrived.get()
                await asyncio.sleep(max(0.0, when - time.monotonic()))
                while self.is_cut(direction, owner):
                    await asyncio.sleep(0.02)
                if not data:
                    return
                writer.write(data)
                self.bytes[direction] += len(data)
                await writer.drain()

        forwarding = asyncio.ensure_future(forward())
        try:
            while True:
                data = await reader.read(65536)
                await arrived.put((time.monotonic() + self.seconds, data))
                if not data:
                    break
            await forwarding
        except OSError:
            pass
        finally:
            forwarding.cancel()
