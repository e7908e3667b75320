"""Whether a Cassandra answers a query: `cassandra.py PORT USER:PASSWORD`.

Speaks version 4 of the native protocol itself, without a driver.
"""

import socket
import struct
import sys

SECONDS_MAX = 5
STARTUP, AUTHENTICATE, QUERY, RESULT, AUTH_RESPONSE, AUTH_SUCCESS = 1, 3, 7, 8, 15, 16
ONE = 1


def main():
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), SECONDS_MAX) as connection:
        ask(connection, STARTUP, struct.pack(">H", 1) + text("CQL_VERSION") + text("3.0.0"), AUTHENTICATE)
        ask(connection, AUTH_RESPONSE, long_text("\0" + sys.argv[2].replace(":", "\0")), AUTH_SUCCESS)
        query = long_text("SELECT release_version FROM system.local")
        ask(connection, QUERY, query + struct.pack(">HB", ONE, 0), RESULT)


def text(value):
    return struct.pack(">H", len(value)) + value.encode()


def long_text(value):
    return struct.pack(">i", len(value)) + value.encode()


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
