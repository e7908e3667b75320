"""Whether a MongoDB can be written to: `mongodb.py PORT,… REPLICA_SET USER:PASSWORD`.

Begins the replica set and makes the user, if they are asked for and not there. Speaks the wire protocol itself, since no shell or
driver need be installed.
"""

import socket
import struct
import sys

SECONDS_MAX = 5
OP_MSG = 2013
# The member `ok` of an answer, with the number 1.
OK = b"\x01ok\0" + struct.pack("<d", 1)


def main():
    ports, replica_set, login = [int(port) for port in sys.argv[1].split(",")], sys.argv[2], sys.argv[3]
    if replica_set and not any(map(writable, ports)):
        members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(ports)]
        # A member that is gone is missed sooner than by default. In milliseconds.
        settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
        # Refused where there is one already; then only the election is to be waited for.
        ask(ports[0], {"replSetInitiate": {"_id": replica_set, "members": members, "settings": settings}})
    if not any(map(writable, ports)):
        sys.exit(1)
    if login:
        make_user(ports[0], *login.split(":"))


def make_user(port, name, password):
    """As long as there is no user, one who comes from this machine may make the first."""
    answer = ask(port, {"createUser": name, "pwd": password, "roles": [{"role": "root", "db": "admin"}]})
    if OK not in answer and b"requires authentication" not in answer:
        sys.exit("the user could not be made")


def writable(port):
    try:
        return b"\x08isWritablePrimary\0\x01" in ask(port, {"hello": 1})
    except OSError:
        return False


def ask(port, command):
    """The raw answer to a command."""
    body = struct.pack("<IB", 0, 0) + bson({**command, "$db": "admin"})
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        connection.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, OP_MSG) + body)
        length, _, _, _ = struct.unpack("<iiii", receive(connection, 16))
        return receive(connection, length - 16)


def receive(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            sys.exit("the connection was closed")
        data += part
    return data


def bson(document):
    """As much of BSON as our commands need."""
    data = b""
    for key, value in document.items():
        key = key.encode() + b"\0"
        match value:
            case int():
                data += b"\x10" + key + struct.pack("<i", value)
            case str():
                text = value.encode() + b"\0"
                data += b"\x02" + key + struct.pack("<i", len(text)) + text
            case dict():
                data += b"\x03" + key + bson(value)
            case list():
                data += b"\x04" + key + bson({str(index): item for index, item in enumerate(value)})
    return struct.pack("<i", len(data) + 5) + data + b"\0"


try:
    main()
except OSError as error:
    sys.exit(str(error))
