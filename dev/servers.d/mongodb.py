"""Whether a MongoDB can be written to: `mongodb.py PORT REPLICA_SET USER:PASSWORD`.

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
    port, replica_set, login = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if not writable(port) and replica_set:
        member = {"_id": 0, "host": f"127.0.0.1:{port}"}
        # Refused where there is one already; then only the election is to be waited for.
        ask(port, {"replSetInitiate": {"_id": replica_set, "members": [member]}})
    if not writable(port):
        sys.exit("nobody can write")
    if login:
        make_user(port, *login.split(":"))


def make_user(port, name, password):
    """As long as there is no user, one who comes from this machine may make the first."""
    answer = ask(port, {"createUser": name, "pwd": password, "roles": [{"role": "root", "db": "admin"}]})
    if OK not in answer and b"requires authentication" not in answer:
        sys.exit("the user could not be made")


def writable(port):
    return b"\x08isWritablePrimary\0\x01" in ask(port, {"hello": 1})


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
