"""A bucket behind a real HTTP endpoint that speaks S3: moto's server, in a process of its own that can be stopped.

It takes any credentials, so nothing about authentication can be learnt from it.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request

from tests.ports import free_port

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


class BucketServer:
    """Runs on a port of its own. What it holds goes when it stops."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> str:
        """What stands in the config."""
        return f"s3://faces/of/people?endpoint={self.endpoint}"

    def start(self) -> None:
        """Start, wait until it answers, and make the bucket."""
        command = [
            sys.executable,
            "-c",
            f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{self.port}'])",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"{self.endpoint}/faces", method="PUT")
                request.add_header(
                    "Authorization", "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request"
                )
                with urllib.request.urlopen(request, timeout=30):
                    return
            except urllib.error.URLError:
                assert self._process.poll() is None, "the bucket's server has ended"
                assert time.monotonic() < deadline, "the bucket's server does not answer"
                time.sleep(0.1)

    def stop(self) -> None:
        """Kill it: connections are refused from now on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
