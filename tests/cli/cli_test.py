"""Commands, options, exit codes and error sentences of quern, on tiny models."""

import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
from tiny_model import write_model  # noqa: E402

BINARY = sys.argv.pop(1)
MODELS = TESTS / "golden" / "models"
COMMANDS = ["run", "serve", "inspect", "tokenize", "logits", "version"]
OK, FAILED, USAGE = 0, 1, 2
NOT_UTF8 = os.fsdecode(b"\xff")


class Result:
    def __init__(self, args, stdin=b"", env=None, **more):
        done = subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True,
                              timeout=120, env={**os.environ, **(env or {})}, **more)
        self.code, self.raw = done.returncode, done.stdout
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tmp = pathlib.Path(cls.folder.name)
        cls.chat, cls.plain = cls.tmp / "chat", cls.tmp / "plain"
        for path, template in ((cls.chat, True), (cls.plain, False)):
            path.mkdir()
            write_model(path, **({} if template else {"template": None}))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ok(self, *args, **more):
        r = Result(args, **more)
        self.assertEqual((r.code, r.err), (OK, ""), args)
        return r

    def fails(self, code, sentence, *args, **more):
        """The command ends with `code`, nothing on stdout, and one sentence on stderr."""
        r = Result(args, **more)
        self.assertEqual(r.code, code, (args, r.err))
        self.assertEqual(r.out, "", args)
        self.assertRegex(r.err, r"\Aerror: [^\n]*" + sentence)
        lines = r.err.rstrip("\n").split("\n")
        self.assertIn(len(lines), (1, 2), r.err)
        if len(lines) == 2:
            self.assertTrue(lines[1].startswith("usage: quern "), r.err)
        return r

    def copy(self, source, name):
        """A writable copy of a model, gone after the test."""
        path = self.tmp / name
        if source.is_dir():
            shutil.copytree(source, path)
            self.addCleanup(shutil.rmtree, path)
        else:
            shutil.copy(source, path)
            self.addCleanup(path.unlink)
        return path

    def edit_config(self, path, **changes):
        file = path / "config.json"
        config = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


class Commands(CliTest):
    def test_no_command(self):
        r = Result([])
        self.assertEqual((r.code, r.out), (USAGE, ""))
        self.assertTrue(r.err.startswith("usage: quern COMMAND"))

    def test_unknown_command_names_the_nearest(self):
        self.fails(USAGE, r'unknown command "rnu", did you mean "run"\?', "rnu")
        self.fails(USAGE, r'unknown command "xyzxyz" \(', "xyzxyz")
        self.fails(USAGE, r'unknown command ""', "")

    def test_help(self):
        top = self.ok("--help")
        for form in ("-h", "help"):
            self.assertEqual(self.ok(form).out, top.out)
        for name in COMMANDS:
            self.assertRegex(top.out, rf"(?m)^  {name} ")
            r = self.ok(name, "--help")
            self.assertTrue(r.out.startswith(f"usage: quern {name}"), r.out)
            self.assertEqual(self.ok("help", name).out, r.out)
            for line in r.out.splitlines():
                self.assertLessEqual(len(line), 100, line)
                self.assertEqual(line, line.rstrip())

    def test_unknown_option_names_the_nearest(self):
        self.fails(USAGE, r'unknown option "--max-tokns", did you mean --max-tokens\?', "run", "M",
                   "--max-tokns", "3")
        for name in COMMANDS:
            self.fails(USAGE, r'unknown option "--qqqqqqqqq" \(', name, "--qqqqqqqqq")

    def test_arguments_are_counted(self):
        for name in ("run", "inspect", "tokenize", "logits"):
            self.fails(USAGE, "argument is missing", name)
        self.fails(USAGE, 'unexpected argument "b"', "run", "a", "b")
        self.fails(USAGE, "needs a value", "run", "a", "-p")
        self.fails(USAGE, "takes no value", "run", "a", "--raw=1")

    def test_values_have_ranges(self):
        for option, value in (("--threads", "0"), ("--threads", "1025"), ("--threads", "two"),
                              ("--max-tokens", "0"), ("--temperature", "nan"),
                              ("--temperature", "2.5"), ("--max-model-len", "-1"),
                              ("--kv-cache-memory-bytes", "-5"), ("--activations", "f16"),
                              ("--seed", "99999999999999999999")):
            self.fails(USAGE, rf'option {option}: found "{value}", expected ', "run", "M", option,
                       value)

    def test_version(self):
        r = self.ok("version")
        self.assertRegex(r.out, r"\Aquern \d+\.\d+\.\d+\ncompiler \w+ .*\nisa \w+\n\Z")
        self.assertEqual(self.ok("--version").out, r.out)

    def test_isa(self):
        sentence = 'QUERN_ISA: unknown instruction set "nonsense", this CPU has: generic'
        env = {"QUERN_ISA": "nonsense"}
        self.fails(FAILED, sentence, "version", env=env)
        self.fails(FAILED, sentence, "run", self.plain, "-p", "hi", env=env)
        self.assertIn("\nisa generic\n", self.ok("version", env={"QUERN_ISA": "generic"}).out)

    def test_hostile_names_stay_on_their_line(self):
        path = self.copy(self.plain, "hostile")
        file = path / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        tokenizer["model"]["vocab"]["a\n\x1b[2J\x9b"] = -1
        file.write_text(json.dumps(tokenizer))
        r = self.fails(FAILED, r'token "a\?\?\[2J\?\?": id -1', "tokenize", path, "x")
        self.assertNotIn("\x1b", r.err)

    def test_full_output_is_a_failure(self):
        for args in (("version",), ("run", self.plain, "-p", "hello", "--ignore-eos"),
                     ("tokenize", self.plain, "hello")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([BINARY, *map(str, args)], stdout=full,
                                      stderr=subprocess.PIPE, timeout=120)
            self.assertEqual(done.returncode, FAILED)
            self.assertRegex(done.stderr.decode(),
                             r"\Aerror: standard output: could not write[^\n]*\n\Z")


class Models(CliTest):
    def test_missing(self):
        self.fails(FAILED, 'model "/nonexistent/m": .*No such file', "run", "/nonexistent/m", "-p",
                   "x")
        self.fails(FAILED, "model path is missing", "run", "", "-p", "x")

    def test_directory_without_config(self):
        for command in (("run", "-p", "x"), ("inspect",), ("tokenize", "x")):
            self.fails(FAILED, r'file "config\.json" not found', command[0], MODELS, *command[1:])

    def test_special_files(self):
        fifo = self.tmp / "fifo"
        os.mkfifo(fifo)
        for path in ("/dev/zero", "/dev/null", fifo):
            self.fails(FAILED, "found a special file, expected a regular file", "inspect", path)
        r = self.copy(self.plain, "fifo_model")
        (r / "model.safetensors").unlink()
        os.mkfifo(r / "model.safetensors")
        self.fails(FAILED, "model.safetensors", "run", r, "-p", "x")

    def test_truncated_gguf(self):
        whole = (MODELS / "gguf_mixed" / "model.gguf").read_bytes()
        path = self.tmp / "cut.gguf"
        for n in (0, 3, 4, 8, 16, 23, 24, 40, 100, 1000, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:n])
            self.fails(FAILED, r'model ".*cut\.gguf"', "inspect", path)

    def test_truncated_safetensors(self):
        path = self.copy(self.plain, "cut_model")
        whole = (path / "model.safetensors").read_bytes()
        for n in (0, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
            (path / "model.safetensors").write_bytes(whole[:n])
            self.fails(FAILED, r'safetensors file "model\.safetensors"', "inspect", path)

    def test_unsupported_architecture(self):
        path = self.copy(self.plain, "unsupported")
        self.edit_config(path, architectures=["WombatForCausalLM"], model_type="wombat")
        self.fails(FAILED, "WombatForCausalLM", "run", path, "-p", "x")

    def test_absurd_configuration(self):
        path = self.copy(self.plain, "absurd")
        file = path / "config.json"
        whole = file.read_text()
        keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                "intermediate_size", "vocab_size")
        for key in keys:
            for value in (0, -1, 1 << 40, 1 << 62, None, "12", 1.5, [], {}):
                file.write_text(whole)
                self.edit_config(path, **{key: value})
                r = Result(["run", path, "-p", "x", "--max-tokens", "1"])
                # num_key_value_heads: null means as many as heads, which the weights contradict.
                self.assertEqual((r.code, r.out), (FAILED, ""), (key, value))
                self.assertRegex(r.err, r"\Aerror: model [^\n]*\n\Z", (key, value))


class Tokenize(CliTest):
    def test_ids_are_json(self):
        self.assertEqual(json.loads(self.ok("tokenize", self.plain, "he", "--ids").out), [256])
        self.assertEqual(json.loads(self.ok("tokenize", self.plain, "", "--ids").out), [])

    def test_listing(self):
        self.assertEqual(self.ok("tokenize", self.plain, "he\n").out.split("\n")[0], "   256  'he'")

    def test_input(self):
        file = self.tmp / "text"
        file.write_bytes(b"hello\n")
        want = self.ok("tokenize", self.plain, "hello\n", "--ids").out
        self.assertEqual(self.ok("tokenize", self.plain, "--file", file, "--ids").out, want)
        self.assertEqual(self.ok("tokenize", self.plain, "-f", "-", "--ids", stdin=b"hello\n").out,
                         want)
        self.fails(USAGE, "either TEXT or --file, found neither", "tokenize", self.plain)
        self.fails(USAGE, "either TEXT or --file, found both", "tokenize", self.plain, "x", "-f",
                   "y")
        self.fails(FAILED, "No such file", "tokenize", self.plain, "-f", "/nonexistent")
        self.fails(FAILED, "directory", "tokenize", self.plain, "-f", self.tmp)
        self.fails(FAILED, "byte 1 is 0xff, expected valid UTF-8", "tokenize", self.plain, "-f",
                   "-", stdin=b"a\xff")

    def test_special_tokens(self):
        marked = ("tokenize", self.plain, "<|e|>", "--ids")
        self.assertNotIn(258, json.loads(self.ok(*marked).out))
        self.assertEqual(json.loads(self.ok(*marked, "--parse-special-tokens").out), [258])

    def test_decode(self):
        ids = json.loads(self.ok("tokenize", self.plain, "héllo", "--ids").out)
        for text in (json.dumps(ids), " ".join(map(str, ids)), "\n".join(map(str, ids))):
            self.assertEqual(self.ok("tokenize", self.plain, "--decode", text).out, "héllo\n")
        self.assertEqual(self.ok("tokenize", self.plain, "-d", "258").out, "<|e|>\n")
        self.assertEqual(self.ok("tokenize", self.plain, "-d", "258", "--no-special").out, "\n")
        self.fails(USAGE, "token ids: found 99999, expected 0 to 319", "tokenize", self.plain,
                   "-d", "1,99999")
        self.fails(USAGE, 'token ids: found "x"', "tokenize", self.plain, "-d", "1,x")
        self.fails(USAGE, "token ids: byte 1 is NUL", "tokenize", self.plain, "-d", "-f", "-",
                   stdin=b"1\0,2")

    def test_without_weights(self):
        """A tokenizer alone, and a model whose weights are elsewhere."""
        want = self.ok("tokenize", self.plain, "hello", "--ids").out
        for i, files in enumerate((["tokenizer.json"], ["tokenizer.json", "tokenizer_config.json"],
                                   ["tokenizer.json", "config.json"])):
            path = self.tmp / f"part{i}"
            path.mkdir()
            for name in files:
                shutil.copy(self.plain / name, path)
            self.assertEqual(self.ok("tokenize", path, "hello", "--ids").out, want)
            self.fails(FAILED, "not found|found neither", "run", path, "-p", "x")

    def test_without_tokenizer(self):
        self.fails(FAILED, "this model has no tokenizer", "tokenize", MODELS / "qwen3", "x")


class Logits(CliTest):
    def test_writes_an_array(self):
        """A checkpoint without a tokenizer; header and size of the .npy file."""
        out = self.tmp / "out.npy"
        self.ok("logits", MODELS / "qwen3", "--tokens", "1,2,3", "-o", out)
        data = out.read_bytes()
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        n = struct.unpack("<H", data[8:10])[0]
        header = data[10:10 + n].decode()
        rows, columns = map(int, re.search(r"'shape': \((\d+), (\d+)\)", header).groups())
        vocab = json.loads((MODELS / "qwen3" / "config.json").read_text())["vocab_size"]
        self.assertEqual((rows, columns), (3, vocab))
        self.assertEqual(len(data), 10 + n + 4 * rows * columns)
        ids = self.tmp / "ids"
        ids.write_text("[1, 2, 3]\n")
        again = self.tmp / "again.npy"
        self.ok("logits", MODELS / "qwen3", "--tokens", f"@{ids}", "-o", again)
        self.assertEqual(again.read_bytes(), data)

    def test_output_that_is_no_file(self):
        """Devices and links stay what they are; what cannot be written leaves nothing behind."""
        whole, link, target = self.tmp / "whole.npy", self.tmp / "link.npy", self.tmp / "target.npy"
        logits = ("logits", MODELS / "qwen3", "--tokens", "1,2,3", "-o")
        self.ok(*logits, whole)
        target.write_bytes(b"")
        link.symlink_to(target)
        self.ok(*logits, link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(target.read_bytes(), whole.read_bytes())
        self.assertEqual(self.ok(*logits, "/dev/stdout").raw, whole.read_bytes())
        self.fails(FAILED, 'file "/dev/full": could not write: No space left', *logits, "/dev/full")
        self.fails(FAILED, "could not create: Is a directory", *logits, MODELS)
        small = self.tmp / "small.npy"
        self.fails(FAILED, "could not write: File too large", *logits, small,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        self.assertEqual(list(self.tmp.glob("small*")), [])

    def test_bad_tokens(self):
        model, out = MODELS / "qwen3", self.tmp / "none.npy"
        for tokens, code, sentence in (
                ("", USAGE, "found no id"), ("1,x", USAGE, 'found "x"'), ("-1", USAGE, 'found "-1"'),
                ("1;2", USAGE, 'found "1;2"'), ("99999999999", USAGE, "found"),
                ("1,99999", FAILED, r"tokens\[1\]: found id 99999, expected 0 to "),
                ("@/nonexistent", USAGE, "No such file"), ("@/dev/zero", USAGE, "special file")):
            self.fails(code, sentence, "logits", model, "--tokens", tokens, "-o", out)
        self.fails(USAGE, "option --tokens is missing", "logits", model, "-o", out)
        self.fails(USAGE, "option --output is missing", "logits", model, "--tokens", "1")
        self.fails(FAILED, "could not create", "logits", model, "--tokens", "1", "-o",
                   "/nonexistent/x.npy")
        self.assertFalse(out.exists())

    def test_context(self):
        self.fails(FAILED, "8", "logits", MODELS / "qwen3", "--tokens", ",".join("123456789"),
                   "-o", self.tmp / "none.npy", "--max-model-len", "8")


class Run(CliTest):
    GREEDY = ("--temperature", "0", "--max-tokens", "8", "--ignore-eos")

    def test_answer_alone(self):
        """Standard output holds the answer and a newline; standard error nothing."""
        r = self.ok("run", self.plain, "-p", "hello", *self.GREEDY)
        self.assertTrue(r.raw.endswith(b"\n") and len(r.raw) > 1)
        self.assertEqual(self.ok("run", self.plain, "-p", "hello", "-t", "1", *self.GREEDY).raw,
                         r.raw)
        self.assertEqual(self.ok("run", self.plain, *self.GREEDY, stdin=b"hello\n").raw, r.raw)
        seeded = ("run", self.chat, "-p", "hello", "--seed", "-7", "--max-tokens", "8")
        self.assertEqual(self.ok(*seeded).raw, self.ok(*seeded).raw)

    def test_conversation(self):
        """Each line of standard input is a turn; /clear forgets, /exit leaves."""
        one = self.ok("run", self.chat, *self.GREEDY, stdin=b"a\n").raw
        twice = self.ok("run", self.chat, *self.GREEDY, stdin=b"a\n/clear\na\n").raw
        self.assertEqual(twice, one + one)
        going_on = self.ok("run", self.chat, *self.GREEDY, stdin=b"a\na\n").raw
        self.assertTrue(going_on.startswith(one) and going_on != twice)
        self.assertEqual(self.ok("run", self.chat, *self.GREEDY, stdin=b"a\n/exit\na\n").raw, one)

    def test_odd_prompts(self):
        self.ok("run", self.chat, "-p", "", *self.GREEDY)
        self.fails(FAILED, "prompt: found no tokens", "run", self.plain, "-p", "")
        self.ok("run", self.plain, "-p", " \t ", *self.GREEDY)
        self.ok("run", self.chat, *self.GREEDY, stdin=b"a\0b\n")
        for model in (self.chat, self.plain):
            self.fails(FAILED, "valid UTF-8", "run", model, "-p", NOT_UTF8)
        self.fails(FAILED, "the system message is not valid UTF-8", "run", self.chat, "-p", "x",
                   "--system", NOT_UTF8)
        self.fails(USAGE, "option --system needs a chat template", "run", self.plain, "-p", "x",
                   "--system", "s")

    def test_context_overflow(self):
        self.fails(FAILED, "maximum context length is 1024 tokens", "run", self.plain, "-n", "8",
                   stdin=b"a" * 1000000 + b"\n")
        self.fails(FAILED, "maximum context length is 2 tokens", "run", self.plain, "-p", "hello",
                   "--max-model-len", "2")
        self.fails(FAILED, "max_model_len: found 4096, the model's limit is 1024", "run",
                   self.plain, "-p", "x", "--max-model-len", "4096")

    def test_memory(self):
        self.fails(FAILED, "KV cache: one block of 16 tokens needs 2048 bytes, available 1", "run",
                   self.plain, "-p", "x", "--kv-cache-memory-bytes", "1")
        self.fails(FAILED, "KV cache: needs 109951162777600 bytes", "run", self.plain, "-p", "x",
                   "--kv-cache-memory-bytes", "100T")

    def test_chat_template(self):
        bad = self.tmp / "bad.jinja"
        bad.write_text("{% for %}")
        self.fails(FAILED, r'chat template ".*bad\.jinja"', "run", self.chat, "-p", "x",
                   "--chat-template", bad)
        self.fails(FAILED, "special file", "run", self.chat, "-p", "x", "--chat-template",
                   "/dev/zero")

    def test_file_that_shrinks(self):
        """Embedding rows are read from the map: a file cut under it ends with a sentence."""
        path = self.copy(self.plain, "shrinks")
        # A sanitizer's own handler would be called in place of the sentence.
        own = {name: os.environ.get(name, "") + ":handle_sigbus=0"
               for name in ("ASAN_OPTIONS", "TSAN_OPTIONS")}
        with subprocess.Popen([BINARY, "run", path, *self.GREEDY], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, **own}) as p:
            p.stdin.write(b"hello\n")
            p.stdin.flush()
            self.assertTrue(p.stdout.read(1))
            os.truncate(path / "model.safetensors", 10)
            _, err = p.communicate(b"more\n", timeout=60)
        self.assertEqual(p.returncode, FAILED, err)
        self.assertRegex(err.decode(), r"\Aerror: [^\n]*its file shrank[^\n]*\n\Z")

    def test_reader_gone(self):
        """A reader that leaves ends the answer at once."""
        with subprocess.Popen([BINARY, "run", self.plain, "-p", "hello", "--ignore-eos"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            p.stdout.read(1)
            p.stdout.close()
            err = p.stderr.read().decode()
            self.assertEqual(p.wait(60), FAILED)
        self.assertRegex(err, r"\Aerror: standard output: could not write[^\n]*\n\Z")

    def test_input_that_cannot_be_read(self):
        fd = os.open(self.tmp, os.O_RDONLY)
        try:
            done = subprocess.run([BINARY, "run", self.plain], stdin=fd, capture_output=True,
                                  timeout=120)
        finally:
            os.close(fd)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(b"error: standard input: could not read: Is a directory", done.stderr)

    def test_termination(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with subprocess.Popen([BINARY, "run", self.plain, "-p", "hello", "--ignore-eos"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
                p.stdout.read(1)
                p.send_signal(sig)
                self.assertIn(p.wait(60), (-sig, OK))


class Terminal(CliTest):
    def talk(self, *args):
        """A process on a terminal of its own, and the terminal's other end."""
        ours, theirs = pty.openpty()
        p = subprocess.Popen([BINARY, *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs,
                             start_new_session=True)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(p.kill)
        return p, ours

    def read_until(self, fd, mark, seconds=60):
        seen, end = b"", time.monotonic() + seconds
        while mark not in seen:
            self.assertLess(time.monotonic(), end, seen)
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                seen += os.read(fd, 4096)
            except OSError as e:  # the other end closed
                self.fail(f"{e} after {seen!r}")
        return seen

    def start(self):
        p, fd = self.talk("run", self.chat, "--ignore-eos", "--temperature", "0")
        self.assertIn(b"Ctrl-C ends an answer", self.read_until(fd, b"> "))
        return p, fd

    def test_interrupt_ends_an_answer(self):
        p, fd = self.start()
        for _ in range(2):  # the conversation goes on
            os.write(fd, b"hello\n")
            self.read_until(fd, b"hello\r\n")
            p.send_signal(signal.SIGINT)
            self.read_until(fd, b"> ")
            os.write(fd, b"/clear\n")
            self.read_until(fd, b"> ")
        os.write(fd, b"\x04")
        self.assertEqual(p.wait(60), OK)

    def test_interrupt_at_the_prompt(self):
        """The first one says how to leave, the second in a row leaves."""
        p, fd = self.start()
        for _ in range(2):
            p.send_signal(signal.SIGINT)
            self.read_until(fd, b"once more leaves.\r\n> ")
            os.write(fd, b"/help\n")
            self.assertIn(b"/clear starts over", self.read_until(fd, b"> "))
        p.send_signal(signal.SIGINT)
        self.read_until(fd, b"once more leaves.\r\n> ")
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(60), OK)


if __name__ == "__main__":
    unittest.main()
