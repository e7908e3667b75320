"""The real server for the checks in Python: started on a free port and an empty folder, and stopped with the check."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 30
# Outside of the ports that the kernel gives to outgoing connections.
PORTS = range(19_000, 20_000)


@contextlib.contextmanager
def running(config=""):
    """Yields the base URL of a server. Shows its log if the check fails."""
    binary = os.environ.get("FLARE_TEST_BINARY") or ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug/flare"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLARE_")}
    with tempfile.TemporaryDirectory(prefix="flare-python-") as folder:
        (Path(folder) / "flare.toml").write_text(config)
        addr = f"127.0.0.1:{free_port()}"
        command = [binary, "start", "--config", "flare.toml", "--addr", addr, "--data", "data"]
        with open(Path(folder) / "flare.log", "w+b") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
            try:
                wait_until_ready(process, f"http://{addr}")
                yield f"http://{addr}"
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended by itself, with {process.returncode}")
            except BaseException:
                log.seek(0)
                sys.stderr.write(f"--- the server's log ---\n{log.read()[-16_384:].decode(errors='replace')}\n")
                raise
            finally:
                process.kill()
                process.wait()


def wait_until_ready(process, base):
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended instead of starting, with {process.returncode}")
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"{base}/ready", timeout=5).status == 200:
                return
        time.sleep(0.01)
    raise RuntimeError(f"the server is not ready after {READY_SECONDS_MAX} s")


def call(base, method, path, body=None):
    """One request with a JSON body; the JSON of the answer. An answer that is not a success is an error."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, content, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=READY_SECONDS_MAX) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error


def free_port():
    start = os.getpid()
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")
