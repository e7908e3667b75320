"""An endpoint for the checks in Python: it records the deliveries that come."""

import contextlib
import http.server
import queue
import threading

DELIVERY_SECONDS_MAX = 30


@contextlib.contextmanager
def listening():
    """Yields the base URL of the endpoint, and a function that waits for the next delivery: its headers, by their names
    in lower case, and its body."""
    deliveries = queue.Queue()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), recorder(deliveries))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", lambda: deliveries.get(timeout=DELIVERY_SECONDS_MAX)
    finally:
        server.shutdown()


def recorder(deliveries):
    class Recorder(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            deliveries.put(({name.lower(): value for name, value in self.headers.items()}, body))

        def log_message(self, *_):
            pass

    return Recorder
