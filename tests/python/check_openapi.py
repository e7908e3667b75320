"""Schemathesis against the running server: no 5xx, and no answer that /openapi.json does not describe.

The seed is fixed, so that a failure comes again. `check_openapi.py --examples 1000 --seed 7` looks further.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import flare_server

SECONDS_MAX = 600

# Checks of schemathesis that do not fit, each with its reason.
EXCLUDED_CHECKS = {
    "positive_data_acceptance": "a well-formed request may name a resource or a document that is not there, or a "
    "pattern that clashes: the schema cannot say it",
    "missing_required_header": "no header is required",
    "ignored_auth": "from loopback no token is needed",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=20_261_116)
    arguments = parser.parse_args()
    # Generated bodies that are slow to arrive or to be answered are not the subject; loaded machines are no failures.
    with flare_server.running('[http]\ntimeout = "20s"\n') as base:
        fill(base)
        failed = explore(base, arguments)
        alive = urllib.request.urlopen(f"{base}/health", timeout=10).status == 200
    print(f"test result: {1 - failed} passed; {failed} failed")
    sys.exit(1 if failed or not alive else 0)


def fill(base):
    """A resource with a subscription and documents, so that not every request meets an empty store."""
    change = {"field": "revision"}
    made = flare_server.call(base, "POST", "/resources", {"endpoint": "http://api.test/users/{id}", "change": change})
    subscription = {"name": "a", "endpoint": {"url": "http://127.0.0.1:9/a", "method": "post"}}
    flare_server.call(base, "POST", f"/resources/{made['id']}/subscriptions", subscription)
    for number in range(5):
        flare_server.call(base, "PUT", f"/documents/http://api.test/users/{number}", {"revision": 1})


def explore(base, arguments):
    schema = json.loads(urllib.request.urlopen(f"{base}/openapi.json", timeout=10).read())
    operations = sum(len(methods) for methods in schema["paths"].values())
    print(f"{operations} operations, at most {arguments.examples} examples each, seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flare-schemathesis-") as folder:
        command = [Path(sys.executable).with_name("schemathesis"), "run", f"{base}/openapi.json"]
        command += ["--checks", "all", "--exclude-checks", ",".join(EXCLUDED_CHECKS)]
        command += ["--max-examples", str(arguments.examples), "--seed", str(arguments.seed)]
        command += ["--continue-on-failure", "--request-timeout", "30", "--generation-database", "none", "--no-color"]
        return int(subprocess.run(command, cwd=folder, timeout=SECONDS_MAX).returncode != 0)


if __name__ == "__main__":
    main()
