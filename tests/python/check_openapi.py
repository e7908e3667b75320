"""Schemathesis against the running server: no 5xx, and no answer that /openapi.json does not describe.

The seed is fixed, so that a failure comes again. `check_openapi.py --examples 1000 --seed 7` looks further.
"""

import argparse
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


# What exists, so that generated requests also reach it; other values are generated besides.
CONFIG = """
[dictionaries.resources]
values = ["{resource}"]

[dictionaries.subscriptions]
values = ["{subscription}"]

[dictionaries.tokens]
values = ["{token}"]

[dictionaries.documents]
values = ["http://api.company.com/users/0", "http://api.company.com/users/1", "http://api.company.com/users/new"]

[parameters]
"path.id" = {{ dictionary = "resources", probability = 0.7 }}
"path.sid" = {{ dictionary = "subscriptions", probability = 0.7 }}
"path.tid" = {{ dictionary = "tokens", probability = 0.7 }}
"path.url" = {{ dictionary = "documents", probability = 0.7 }}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=20_261_116)
    arguments = parser.parse_args()
    # How fast a loaded machine answers is not the subject.
    with flare_server.running('[http]\ntimeout = "20s"\n') as base:
        config = CONFIG.format(**fill(base))
        failed = explore(base, config, arguments)
        alive = urllib.request.urlopen(f"{base}/health", timeout=10).status == 200
    print(f"test result: {1 - failed} passed; {failed} failed")
    sys.exit(1 if failed or not alive else 0)


def fill(base):
    """The resource of the examples in the schema, with subscriptions and documents: not every request shall meet an
    empty store."""
    change = {"field": "revision"}
    made = flare_server.call(base, "POST", "/resources", {"endpoint": "http://api.company.com/users/{id}", "change": change})
    # The second one keeps the resource from being deleted when the first one is.
    for name in ["keeps", "changes"]:
        subscription = {"name": name, "endpoint": {"url": "http://127.0.0.1:9/a", "method": "post"}}
        subscribed = flare_server.call(base, "POST", f"/resources/{made['id']}/subscriptions", subscription)
    for number in range(5):
        flare_server.call(base, "PUT", f"/documents/http://api.company.com/users/{number}", {"revision": 1})
    token = flare_server.call(base, "POST", "/tokens", {"name": "one", "scope": "read"})
    return {"resource": made["id"], "subscription": subscribed["id"], "token": token["id"]}


def explore(base, config, arguments):
    with tempfile.TemporaryDirectory(prefix="flare-schemathesis-") as folder:
        (Path(folder) / "schemathesis.toml").write_text(config)
        command = [Path(sys.executable).with_name("schemathesis"), "run", f"{base}/openapi.json"]
        command += ["--checks", "all", "--exclude-checks", ",".join(EXCLUDED_CHECKS)]
        command += ["--max-examples", str(arguments.examples), "--seed", str(arguments.seed)]
        command += ["--continue-on-failure", "--request-timeout", "30", "--generation-database", "none", "--no-color"]
        return int(subprocess.run(command, cwd=folder, timeout=SECONDS_MAX).returncode != 0)


if __name__ == "__main__":
    main()
