"""Whether a Cassandra answers a query: `cassandra.py PORT`. Speaks version 4 of the native protocol itself, without a driver."""

import socket
import struct
import sys

SECONDS_MAX = 5
STARTUP, READY, QUERY, RESULT = 1, 2, 7, 8
ONE = 1


def main():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), SECONDS_MAX) as connection:
        ask(connection, STARTUP, struct.pack(">H", 1) + text("CQL_VERSION") + text("3.0.0"), READY)
        query = b"SELECT release_version FROM system.local"
        ask(connection, QUERY, struct.pack(">i", len(query)) + query + struct.pack(">HB", ONE, 0), RESULT)


def text(value):
    return struct.pack(">H", len(value)) + value.encode()


def ask(connection, opcode, body, expected):
    connection.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBhBi", receive(connection, 9))
    receive(connection, length)
    if answer != expected:
        sys.exit(f"answered {answer} instead of {expected}")


def receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            sys.exit("the connection was closed")
        data += part
    return data


try:
    main()
except OSError as error:
    sys.exit(str(error))
