"""Wires that are not what they should be: relays of TCP connections on this machine, for tests."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
import time

PIECE_BYTES = 64 * 1024
SEGMENT_BYTES = 1448
"""What a packet of a usual network carries."""
PIECES_UNDERWAY = 64


class Relay:
    """Passes connections on to a port, both ways."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections and the listener."""
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            for source, sink, towards_server in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=self._pass_on, args=(source, sink, towards_server), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, towards_server: bool) -> None:
        raise NotImplementedError


class SilentRelay(Relay):
    """Passes everything on until it is told to be silent: from then on nothing arrives any more,
    and nobody is told so, as with a host whose cable was pulled."""

    def __init__(self, port: int) -> None:
        self.is_silent = False
        self.connections_count = 0
        super().__init__(port)

    def _pass_on(self, source: socket.socket, sink: socket.socket, towards_server: bool) -> None:
        self.connections_count += towards_server
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if not self.is_silent:
                    sink.sendall(piece)
        if not self.is_silent:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


class DamagingRelay(Relay):
    """Flips one bit of what goes one way, once."""

    def __init__(self, port: int, *, towards_server: bool, at_byte: int) -> None:
        """Damage the byte at this place of a connection that is long enough to have it."""
        self._damages_way_there = towards_server
        self._at_byte = at_byte
        self._lock = threading.Lock()
        self.damaged = 0
        super().__init__(port)

    def _pass_on(self, source: socket.socket, sink: socket.socket, towards_server: bool) -> None:
        passed = 0
        is_damaged = towards_server == self._damages_way_there
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(PIECE_BYTES)):
                at = self._at_byte - passed
                if is_damaged and 0 <= at < len(data) and self._may_damage():
                    data[at] ^= 0x10
                passed += len(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _may_damage(self) -> bool:
        with self._lock:
            self.damaged += 1
            return self.damaged == 1


class SlowRelay(Relay):
    """A long way: everything takes `delay_s`, and what is lost on it that much twice more.

    A lost packet holds up all behind it, as in TCP, which sends it again after a round trip; that
    TCP then sends less at a time is not imitated. Any number of pieces are underway at once.
    """

    def __init__(self, port: int, *, delay_s: float, loss: float = 0.0, seed: int = 1) -> None:
        self._delay_s = delay_s
        self._loss = loss
        self._chance = random.Random(seed)
        self.lost = 0
        self.round_trips = 0
        """How often something went there after something had come back."""
        self._came_back = True
        super().__init__(port)

    def _pass_on(self, source: socket.socket, sink: socket.socket, towards_server: bool) -> None:
        underway: queue.Queue[tuple[float, bytes]] = queue.Queue(PIECES_UNDERWAY)
        threading.Thread(target=self._deliver, args=(underway, sink), daemon=True).start()
        due_s = 0.0
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                if towards_server and self._came_back:
                    self.round_trips += 1
                self._came_back = not towards_server
                late_s = self._delay_s * (3 if self._is_lost(len(data)) else 1)
                due_s = max(due_s, time.monotonic() + late_s)
                underway.put((due_s, data))
        underway.put((max(due_s, time.monotonic() + self._delay_s), b""))

    def _is_lost(self, count_bytes: int) -> bool:
        packets = -(-count_bytes // SEGMENT_BYTES)
        is_lost = self._chance.random() > (1 - self._loss) ** packets
        self.lost += is_lost
        return is_lost

    @staticmethod
    def _deliver(underway: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
        data = b"begin"
        with contextlib.suppress(OSError):
            while data:
                due_s, data = underway.get()
                time.sleep(max(0.0, due_s - time.monotonic()))
                if data:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
