"""What the server tests share: a server process, plain HTTP on sockets, metrics, the client."""

import http.client
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
import unittest

BINARY = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def sanitized():
    """Whether the binary carries a sanitizer, whose own memory dwarfs what the tests look at."""
    with open(BINARY, "rb") as f:
        data = f.read()
    return b"__asan_init" in data or b"__tsan_init" in data


class Server:
    """fake_serve with options given as KEY=VALUE."""

    def __init__(self, *options, wait=True, **named):
        args = self.arguments(options, named)
        self.proc = subprocess.Popen([BINARY, *args], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        line = self.proc.stdout.readline()
        ready = line and wait and self.proc.stdout.readline()
        if not line or (wait and ready != "ready\n"):
            _, err = self.proc.communicate(timeout=20)
            raise AssertionError(f"the server did not start: {err}")
        self.address = line.split()[1]
        self.port = int(self.address.rsplit(":", 1)[1]) if "http" in self.address else None

    @staticmethod
    def arguments(options, named):
        return list(options) + [f"{k}={v}" for k, v in named.items()]

    def wait_ready(self):
        return self.proc.stdout.readline()

    def close(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(20)
            except subprocess.TimeoutExpired:
                self.proc.kill()
        out, err = self.proc.communicate()
        return self.proc.returncode, err

    def connect(self, timeout=10):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, text) of one request on its own connection."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if body is not None and "Content-Type" not in headers:
            headers["Content-Type"] = "application/json"
        if isinstance(body, str):
            body = body.encode()
        conn.request(method, path, body, headers)
        r = conn.getresponse()
        text = r.read().decode("utf-8")
        conn.close()
        return r.status, r.headers, text

    def post(self, path, body, **headers):
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def completion(self, prompt, **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def chat(self, content, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    def events(self, path, body):
        """The data of every event of a stream, [DONE] last."""
        status, headers, text = self.request("POST", path, {**body, "stream": True})
        assert status == 200, text
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert text.endswith("\n\n") and "\r" not in text
        out = []
        for block in text[:-2].split("\n\n"):
            if block.startswith(":"):
                continue
            assert block.startswith("data: ") and "\n" not in block, block
            out.append(block[6:])
        assert out[-1] == "[DONE]"
        return [json.loads(e) for e in out[:-1]] + ["[DONE]"]

    def metrics(self):
        """Series with their labels -> value."""
        status, headers, text = self.request("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        out = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                assert series not in out, series
                out[series] = float(value)
        return out

    def metric(self, name, **labels):
        want = [f'{k}="{v}"' for k, v in labels.items()]
        found = [v for s, v in self.metrics().items()
                 if s.split("{")[0] == name and all(w in s for w in want)]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def finished(self, reason):
        return self.metric("vllm:request_success_total", finished_reason=reason)

    def at_rest(self, timeout=5):
        """Wait until nothing runs; then nothing may hold blocks."""
        end = time.time() + timeout
        while time.time() < end:
            if (self.metric("vllm:num_requests_running") == 0
                    and self.metric("vllm:num_requests_waiting") == 0):
                assert self.metric("vllm:kv_cache_usage_perc") == 0
                return
            time.sleep(0.02)
        raise AssertionError("requests still run")

    def rss(self):
        with open(f"/proc/{self.proc.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def client(self, **options):
        import openai
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none",
                             **{"max_retries": 0, **options})


def post_bytes(path, body, extra=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{extra}\r\n")
    return head.encode() + data


def read_until(sock, needle, timeout=10):
    """Bytes up to and with the needle, or up to the end."""
    data = b""
    end = time.time() + timeout
    while needle not in data:
        ready, _, _ = select.select([sock], [], [], max(0, end - time.time()))
        if not ready:
            raise TimeoutError(data[:200])
        chunk = sock.recv(65536)
        if not chunk:
            break
        data += chunk
    return data


def read_all(sock, timeout=10):
    """Everything until the peer closes."""
    sock.settimeout(timeout)
    data = b""
    while True:
        try:
            chunk = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not chunk:
            return data
        data += chunk


def statuses(data):
    return [int(s) for s in re.findall(rb"HTTP/1\.[01] (\d{3}) ", data)]


class ServerTest(unittest.TestCase):
    """One server for the class; each test leaves it answering and at rest."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(**cls.options)

    @classmethod
    def tearDownClass(cls):
        code, err = cls.server.close()
        assert code == 0, err

    def tearDown(self):
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        self.server.at_rest()

    def assertGrewLess(self, server, before, limit):
        """Resident memory, where it says something."""
        if not sanitized():
            self.assertLess(server.rss() - before, limit)

    def assertError(self, answer, status=400, param=None, kind="invalid_request_error", code=None):
        self.assertEqual(answer[0], status, answer)
        error = answer[1]["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["type"], kind)
        self.assertTrue(error["message"])
        if param is not None:
            self.assertEqual(error["param"], param, error)
        self.assertEqual(error["code"], code)
        return error["message"]
