"""Request fields, answers and errors, through the official client and as raw JSON."""

import json
import threading
import time
import unittest

from harness import Server, ServerTest, post_bytes

USER = [{"role": "user", "content": "q"}]


class Requests(ServerTest):
    options = {"step_us": 200}

    def ok(self, answer):
        self.assertEqual(answer[0], 200, answer)
        return answer[1]

    def choice(self, answer):
        return self.ok(answer)["choices"][0]

    def test_REQ_01_null_is_absent(self):
        nulls = dict.fromkeys(("max_tokens", "temperature", "stop", "seed", "n", "top_k", "stream",
                               "logit_bias", "response_format", "logprobs", "stream_options"))
        self.ok(self.server.completion("[[97]]", **nulls))
        self.ok(self.server.chat("[[97]]", **nulls, tools=None, tool_choice=None))

    def test_REQ_02_max_completion_tokens_wins(self):
        for extra in ({}, {"max_tokens": 9}):
            answer = self.ok(self.server.chat("[[97]]*", max_completion_tokens=5, **extra))
            self.assertEqual(answer["usage"]["completion_tokens"], 5)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_REQ_03_zero_tokens(self):
        answer = self.ok(self.server.completion("ab", max_tokens=0))
        self.assertEqual((answer["choices"][0]["text"], answer["choices"][0]["finish_reason"],
                          answer["usage"]["completion_tokens"]), ("", "length", 0))
        self.assertEqual(self.choice(self.server.completion("ab", max_tokens=0, echo=True))["text"],
                         "ab")
        self.assertError(self.server.chat("a", max_tokens=0), param="max_tokens")
        self.assertError(self.server.completion("a", max_tokens=-1), param="max_tokens")

    def test_REQ_07_prompt_ids(self):
        for prompt, param in (([-1], "prompt[0]"), ([[-1]], "prompt[0][0]"), ([300], "prompt[0]"),
                              ([4294967294], "prompt[0]"), ([1.5], "prompt[0]"),
                              ([97, "a"], "prompt[1]"), ([], "prompt"), ([[]], "prompt[0]"),
                              (True, "prompt"), ({}, "prompt"), (None, "prompt"),
                              (["a", 1], "prompt[1]"), (["a", ""], "prompt[1]")):
            self.assertError(self.server.completion(prompt), param=param)
        self.ok(self.server.completion([299], max_tokens=1))

    def test_REQ_08_surrogates(self):
        for text in (r"x \ud83d", r"\ude00"):
            body = '{"messages":[{"role":"user","content":"%s"}]}' % text
            self.assertError(self.server.post("/v1/chat/completions", body))
        body = r'{"messages":[{"role":"user","content":"\ud83d\ude00"}],"max_tokens":1}'
        self.ok(self.server.post("/v1/chat/completions", body))

    def test_REQ_09_utf8(self):
        for raw in (b'{"prompt":"\xff"}', b'{"prompt":"\xc0\xaf"}',
                    b'{"prompt":"a","model":"\xff"}'):
            self.assertError(self.server.post("/v1/completions", raw))
        self.ok(self.server.post("/v1/chat/completions",
                                 r'{"messages":[{"role":"user","content":"a\u0000b"}],"n":1,'
                                 r'"max_tokens":2}'))
        answer = self.choice(self.server.completion("[[255 97 192 128]]", max_tokens=4))
        self.assertTrue(answer["text"])  # the helper decoded it as UTF-8 and JSON

    def test_REQ_10_depth(self):
        for depth in (10000, 3000, 100000):
            for field in ("unknown", "tools"):
                body = '{"prompt":"a","%s":%s1%s}' % (field, "[" * depth, "]" * depth)
                self.assertError(self.server.post("/v1/completions", body))
        for body in ("", "[]", "1", "{", '{"prompt":"a"}}', '{"prompt":"a","prompt":"b"}',
                     '{"prompt":"a","temperature":NaN}', '{"prompt":"a","seed":1e999}'):
            self.assertError(self.server.post("/v1/completions", body))

    def test_REQ_11_limits_before_allocation(self):
        before = self.server.rss()
        for fields in ({"n": 5000000}, {"n": 129}, {"n": 0}, {"best_of": 10**9},
                       {"logprobs": 10**9}, {"n": 3, "best_of": 2}):
            self.assertError(self.server.completion("a", **fields))
        self.assertError(self.server.chat("a", logprobs=True, top_logprobs=10**9),
                         param="top_logprobs")
        self.assertError(self.server.completion(["a"] * 2000), param="prompt")
        self.assertError(self.server.completion(["a"] * 100, n=100), param="prompt")
        self.assertGrewLess(self.server, before, 16 << 20)

    def test_errors_stay_small(self):
        body = {"prompt": "a", **{f"field{i}": "x" for i in range(10000)}, "n": "y" * 4000}
        status, _, text = self.server.request("POST", "/v1/completions", body)
        self.assertEqual(status, 400)
        self.assertLess(len(text), 16 << 10)

    def test_unknown_fields_are_ignored(self):
        self.ok(self.server.completion("[[97]]", user="u", metadata={}, store=True, best=1,
                                       service_tier="x", kv_transfer_params={"a": 1}))

    def test_constraints_are_never_ignored(self):
        for field, value in (("response_format", {"type": "json_object"}),
                             ("response_format", {"type": "json_schema", "json_schema": {}}),
                             ("response_format", "text"), ("structured_outputs", {"regex": "a"}),
                             ("guided_json", {}), ("guided_regex", "a"), ("guided_choice", ["a"]),
                             ("guided_grammar", "a"), ("bad_words", ["a"]),
                             ("use_beam_search", True), ("length_penalty", 2),
                             ("repetition_detection", {"min_count": 2}), ("cache_salt", ""),
                             ("logprob_token_ids", [1]), ("thinking_token_budget", 5),
                             ("prompt_embeds", "a")):
            self.assertError(self.server.completion("a", **{field: value}), param=field)
            self.assertError(self.server.chat("a", **{field: value}), param=field)
        self.assertError(self.server.completion("a", suffix="b"), param="suffix")
        self.ok(self.server.chat("[[97]]", response_format={"type": "text"}, bad_words=[]))

    def test_tools(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        for fields, param in (({"tools": []}, "tools"), ({"tools": [tool]}, "tool_choice"),
                              ({"tool_choice": "auto"}, "tool_choice"),
                              ({"tools": [tool], "tool_choice": "auto"}, "tool_choice"),
                              ({"tools": [tool], "tool_choice": "required"}, "tool_choice"),
                              ({"tools": [tool], "tool_choice": "other"}, "tool_choice"),
                              ({"tools": [tool], "tool_choice": {
                                  "type": "function", "function": {"name": "g"}}}, "tool_choice")):
            self.assertError(self.server.chat("a", **fields), param=param)
        self.ok(self.server.chat("[[97]]", tools=[tool], tool_choice="none"))

    def test_messages_are_checked(self):
        for messages, param in (([], "messages"), (None, "messages"), ("a", "messages"),
                                ([1], "messages[0]"), ([{"content": "a"}], "messages[0].role"),
                                ([{"role": "robot", "content": "a"}], "messages[0].role"),
                                ([{"role": "user"}], "messages[0].content"),
                                ([{"role": "user", "content": 5}], "messages[0].content"),
                                ([{"role": "user", "content": [{"type": "text"}]}],
                                 "messages[0].content[0]"),
                                (USER + [{"role": "assistant", "tool_calls": [{}]}],
                                 "messages[1].tool_calls[0].function")):
            self.assertError(self.server.post("/v1/chat/completions", {"messages": messages}),
                             param=param)
        parts = [{"type": "text", "text": "[[97 "}, {"type": "text", "text": "98]]"}]
        self.assertEqual(self.choice(self.server.chat([{"role": "user", "content": parts}]))
                         ["message"]["content"], "ab")

    def test_SEC_03_images_are_refused(self):
        for url in ("http://127.0.0.1:1/", "file:///secret", "data:image/png;base64,AAAA"):
            part = {"type": "image_url", "image_url": {"url": url}}
            self.assertError(self.server.chat([{"role": "user", "content": [part]}]),
                             param="messages[0].content[0]")

    def test_SEC_05_templates_come_from_the_operator(self):
        self.assertError(self.server.chat("a", chat_template="{{ 1 }}"), param="chat_template")
        self.assertError(self.server.chat("a", chat_template_kwargs={"chat_template": "x"}),
                         param="chat_template_kwargs")

    def test_SEC_08_model_names(self):
        for name in ("../../secret", "%2e%2e%2fsecret", "a\u0000b", "fake\u0000", "x" * 10000):
            answer = self.server.completion("a", model=name)
            self.assertError(answer, 404, "model", code="model_not_found")
            self.assertError(self.server.chat("a", model=name), 404, "model",
                             code="model_not_found")
        status, _, text = self.server.request("GET", "/v1/models/..%2f..%2fsecret")
        self.assertError((status, json.loads(text)), 404, "model", code="model_not_found")
        self.ok(self.server.completion("[[97]]", model=""))
        self.ok(self.server.completion("[[97]]", model="dir/fake-model"))
        self.assertEqual(self.server.request("GET", "/v1/models/dir%2Ffake-model")[0], 200)
        self.assertEqual(self.server.request("GET", "/v1/models/%zz")[0], 404)

    def test_SMP_02_top_k_range(self):
        texts = [self.choice(self.server.completion("k", seed=1, temperature=1, **f))["text"]
                 for f in ({}, {"top_k": 0}, {"top_k": -1}, {"top_k": 10**9})]
        self.assertEqual(len(set(texts)), 1)
        self.assertError(self.server.completion("k", top_k=-2), param="top_k")

    def test_SMP_06_choices_repeat_as_a_set(self):
        def run():
            answer = self.ok(self.server.completion("abc", n=4, seed=7, temperature=1))
            self.assertEqual([c["index"] for c in answer["choices"]], [0, 1, 2, 3])
            self.assertEqual(answer["usage"]["prompt_tokens"], 3)
            self.assertEqual(answer["usage"]["completion_tokens"], 64)
            return [c["text"] for c in answer["choices"]]
        first = run()
        self.assertEqual(len(set(first)), 4)
        self.assertEqual(run(), first)

    def test_SMP_07_logit_bias(self):
        for bias in ({"300": 5}, {"abc": 1}, {"-1": 1}, {"1.0": 1}, {"": 1}, {"5": "a"}, [1], 3):
            self.assertError(self.server.completion("a", logit_bias=bias), param="logit_bias")
        self.ok(self.server.completion("[[97]]", logit_bias={"299": -100}))

    def test_SMP_10_ranges(self):
        for field, value in (("temperature", 999999), ("temperature", -1), ("top_p", -1),
                             ("top_p", 1.5), ("repetition_penalty", 0), ("top_p", "a"),
                             ("seed", "a"), ("seed", True), ("seed", 1.5)):
            self.assertError(self.server.completion("a", **{field: value}), param=field)

    def test_STR_05_stop_forms(self):
        self.assertError(self.server.completion("a", stop=[""]), param="stop[0]")
        self.assertError(self.server.completion("a", stop=""), param="stop")
        self.assertError(self.server.completion("a", stop=[1]), param="stop[0]")
        for stop in (None, []):
            self.assertEqual(self.choice(self.server.completion("[[97 120 98]]", stop=stop))
                             ["text"], "axb")
        choice = self.choice(self.server.completion("[[97 120 98]]", stop="x"))
        self.assertEqual((choice["text"], choice["stop_reason"]), ("a", "x"))

    def test_TPL_06_a_template_refuses(self):
        messages = [{"role": "system", "content": "refuse"}, *USER]
        self.assertIn("System role not supported", self.assertError(self.server.chat(messages)))

    def test_TPL_09_continue_final_message(self):
        messages = [*USER, {"role": "assistant", "content": "The ans"}]
        _, body = self.server.post("/tokenize", {"messages": messages,
                                                 "continue_final_message": True})
        text = self.server.post("/detokenize", {"tokens": body["tokens"]})[1]["prompt"]
        self.assertTrue(text.endswith("The ans"), text)
        self.assertError(self.server.chat(messages, continue_final_message=True,
                                          add_generation_prompt=True),
                         param="continue_final_message")
        answer = self.choice(self.server.chat(messages, continue_final_message=True, echo=True,
                                              max_tokens=1))
        self.assertEqual(answer["message"]["content"][:7], "The ans")

    def test_TPL_11_kwargs_keep_their_types(self):
        def first(kwargs):
            body = {"messages": USER, "chat_template_kwargs": kwargs}
            return chr(self.ok(self.server.post("/tokenize", body))["tokens"][0])
        self.assertEqual([first(k) for k in ({"enable_thinking": False}, {},
                                             {"enable_thinking": None}, {"enable_thinking": 0})],
                         ["E", "u", "u", "u"])
        body = {"messages": USER, "reasoning_effort": "none"}
        self.assertEqual(self.ok(self.server.post("/tokenize", body))["tokens"][0], ord("E"))
        self.assertError(self.server.chat("a", reasoning_effort="extreme"),
                         param="reasoning_effort")

    def test_echo_and_logprobs(self):
        choice = self.choice(self.server.completion([97, 98], echo=True, logprobs=2, max_tokens=1,
                                                    temperature=0))
        lp = choice["logprobs"]
        self.assertEqual(lp["tokens"][:2], ["a", "b"])
        self.assertEqual(lp["text_offset"], [0, 1, 2])
        self.assertEqual((lp["token_logprobs"][0], lp["top_logprobs"][0]), (None, None))
        for token, value, top in list(zip(lp["tokens"], lp["token_logprobs"],
                                          lp["top_logprobs"]))[1:]:
            self.assertEqual(top[token], value)
            self.assertEqual(max(top.values()), value)
        self.assertEqual(len(choice["text"]), 3)

    def test_prompt_logprobs(self):
        rows = self.choice(self.server.completion("abc", prompt_logprobs=1, max_tokens=1))
        rows = rows["prompt_logprobs"]
        self.assertIsNone(rows[0])
        self.assertEqual(rows[1]["98"]["decoded_token"], "b")
        self.assertError(self.server.completion("a", prompt_logprobs=21), param="prompt_logprobs")
        self.assertError(self.server.completion("a", prompt_logprobs=1, stream=True),
                         param="prompt_logprobs")

    def test_best_of_takes_the_likeliest(self):
        few = self.ok(self.server.completion("b", best_of=8, n=2, seed=3, max_tokens=4))
        every = self.ok(self.server.completion("b", n=8, seed=3, max_tokens=4, logprobs=0))
        means = sorted(((sum(c["logprobs"]["token_logprobs"]), c["text"])
                        for c in every["choices"]), reverse=True)
        self.assertEqual(len(few["choices"]), 2)
        got = {c["text"] for c in few["choices"]}
        self.assertTrue(got <= {t for m, t in means if m >= means[1][0]}, (got, means))

    def test_token_ids(self):
        choice = self.choice(self.server.completion("[[97 98]]", return_token_ids=True))
        self.assertEqual(choice["token_ids"], [97, 98, 256])
        self.assertEqual(choice["prompt_token_ids"], list(b"[[97 98]]"))
        answer = self.ok(self.server.chat("[[97]]", return_token_ids=True))
        self.assertEqual(answer["choices"][0]["token_ids"], [97, 256])
        self.assertTrue(answer["prompt_token_ids"])

    def test_truncation(self):
        for fields, want in (({"truncate_prompt_tokens": 3}, "def"), ({
                "truncate_prompt_tokens": 2, "truncation_side": "right"}, "ab")):
            answer = self.ok(self.server.completion("abcdef", return_token_ids=True, **fields))
            self.assertEqual(bytes(answer["choices"][0]["prompt_token_ids"]).decode(), want)
        self.assertError(self.server.completion("a", truncate_prompt_tokens=5000))
        self.assertError(self.server.completion("a", truncation_side="up"),
                         param="truncation_side")

    def test_request_ids(self):
        status, headers, text = self.server.request(
            "POST", "/v1/completions", {"prompt": "[[97]]"}, {"X-Request-Id": "abc-1"})
        self.assertEqual((status, headers["X-Request-Id"], json.loads(text)["id"]),
                         (200, "abc-1", "cmpl-abc-1"))
        answer = self.ok(self.server.chat("[[97]]", request_id="mine"))
        self.assertEqual(answer["id"], "chatcmpl-mine")
        _, headers, _ = self.server.request("GET", "/health", headers={"X-Request-Id": "a b"})
        self.assertNotEqual(headers["X-Request-Id"], "a b")

    def test_tokenize_and_detokenize(self):
        answer = self.ok(self.server.post("/tokenize", {"prompt": "hé", "return_token_strs": True}))
        self.assertEqual((answer["count"], answer["tokens"], answer["max_model_len"]),
                         (3, list("hé".encode()), 4096))
        self.assertEqual(len(answer["token_strs"]), 3)
        answer = self.ok(self.server.post("/detokenize", {"tokens": list("hé".encode())}))
        self.assertEqual(answer["prompt"], "hé")
        self.assertError(self.server.post("/detokenize", {"tokens": [300]}), param="tokens[0]")
        self.assertError(self.server.post("/tokenize", {}), param="prompt")

    def test_small_routes(self):
        self.assertEqual(self.server.request("GET", "/ping")[0], 200)
        self.assertEqual(self.server.request("POST", "/ping")[0], 200)
        self.assertEqual(json.loads(self.server.request("GET", "/version")[2]),
                         {"version": "0.0-fake"})
        self.assertEqual(json.loads(self.server.request("GET", "/load")[2]), {"server_load": 0})
        card = json.loads(self.server.request("GET", "/v1/models")[2])["data"][0]
        self.assertEqual((card["id"], card["root"], card["owned_by"], card["max_model_len"]),
                         ("fake", "dir/fake-model", "quern", 4096))

    def test_nonfinite_logits_are_500(self):
        answer = self.server.completion("[[nan]]")
        self.assertError(answer, 500, kind="server_error", code="nonfinite_logits")

    def test_shape_of_a_chat_answer(self):
        answer = self.ok(self.server.chat("[[97]]"))
        self.assertEqual(list(answer), ["id", "object", "created", "model", "choices", "usage",
                                        "service_tier", "system_fingerprint", "prompt_logprobs",
                                        "prompt_token_ids", "kv_transfer_params"])
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(list(answer["choices"][0]), ["index", "message", "logprobs",
                                                      "finish_reason", "stop_reason", "token_ids"])
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + 2)
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 0})


class Context(ServerTest):
    options = {"context": 64, "step_us": 100}

    def test_REQ_04_max_tokens_is_cut(self):
        status, answer = self.server.completion("[[97]]*xxx", max_tokens=1000)
        self.assertEqual(status, 200)
        self.assertEqual(answer["usage"]["completion_tokens"], 54)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_REQ_05_overflow(self):
        for n in (64, 65, 10000):
            for answer in (self.server.completion([97] * n), self.server.completion("a" * n)):
                text = self.assertError(answer, code="context_length_exceeded")
                self.assertTrue(text.startswith("This model's maximum context length is 64 tokens. "
                                                "However, you requested 16 output tokens and your "
                                                "prompt contains "), text)
            if n < 10000:
                self.assertIn(f"contains {n} input tokens", text)
        self.assertError(self.server.chat("a" * 64), code="context_length_exceeded")
        status, answer = self.server.completion([98] * 63)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 1))


class Special(unittest.TestCase):
    def test_REQ_06_empty_prompt(self):
        server = Server()
        status, body = server.completion("")
        self.assertEqual((status, body["error"]["param"]), (400, "prompt"))
        self.assertEqual(server.completion("[[97]]")[0], 200)
        self.assertEqual(server.close()[0], 0)
        server = Server(bos=1)
        self.assertEqual(server.completion("")[0], 200)
        self.assertEqual(server.close()[0], 0)

    def test_TPL_07_no_template(self):
        server = Server(no_template=1)
        status, body = server.chat("a")
        self.assertEqual(status, 400)
        self.assertIn("--chat-template", body["error"]["message"])
        self.assertEqual(server.completion("[[97]]")[0], 200)
        self.assertEqual(server.request("GET", "/v1/models")[0], 200)
        self.assertEqual(server.close()[0], 0)

    def test_REQ_12_cors_and_keys(self):
        server = Server("key=one", "key=two")
        origin = {"Origin": "http://page"}
        status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={
            **origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization"})
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "*")
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])
        self.assertIn("authorization", headers["Access-Control-Allow-Headers"])
        for auth in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Bearer onex"},
                     {"Authorization": "Basic one"}, {"x-api-key": ""}):
            status, headers, text = server.request("POST", "/v1/completions", {"prompt": "[[97]]"},
                                                   {**origin, **auth})
            self.assertEqual(status, 401, auth)
            self.assertEqual(headers["Access-Control-Allow-Origin"], "*")
            self.assertEqual(json.loads(text)["error"]["code"], "invalid_api_key")
        for auth in ({"Authorization": "Bearer one"}, {"Authorization": "bEARER two"},
                     {"X-Api-Key": "two"}):
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "[[97]]"},
                                            auth)[0], 200)
        self.assertEqual(server.request("GET", "/v1/models")[0], 401)
        for path in ("/health", "/metrics", "/version"):
            self.assertEqual(server.request("GET", path)[0], 200)
        self.assertEqual(server.close()[0], 0)

    def test_names_root_path_and_defaults(self):
        server = Server("name=first", "name=second", "root_path=/base",
                        'override={"max_new_tokens": 3, "temperature": 0}',
                        'kwargs={"enable_thinking": false}')
        status, body = server.post("/base/v1/completions", {"prompt": "[[97]]*", "max_tokens": 9,
                                                            "model": "second"})
        self.assertEqual((status, body["model"], body["usage"]["completion_tokens"]),
                         (200, "first", 3))
        self.assertEqual(server.completion("a", model="fake")[0], 404)
        one, two = (server.completion("zz")[1]["choices"][0]["text"] for _ in range(2))
        self.assertEqual(one, two)
        tokens = server.post("/tokenize", {"messages": USER})[1]["tokens"]
        self.assertEqual(tokens[0], ord("E"))
        self.assertEqual(server.close()[0], 0)

    def test_bad_operator_json_stops_the_start(self):
        for option in ("override={", 'override={"temperature": 9}', "kwargs=[]"):
            with self.assertRaisesRegex(AssertionError, "generation-config|template-kwargs"):
                Server(option)


class Metrics(ServerTest):
    options = {"step_us": 1000}

    def test_MET_01_each_request_once(self):
        before = {r: self.server.finished(r) for r in ("stop", "length", "abort", "error")}
        for _ in range(2):
            self.server.completion("[[97]]")
        self.server.completion("[[97]]*", max_tokens=3)
        for _ in range(3):
            with self.server.connect() as s:
                s.sendall(post_bytes("/v1/completions", {"prompt": "[[97]]*", "max_tokens": 4000}))
                while self.server.metric("vllm:num_requests_running") == 0:
                    time.sleep(0.01)
            self.server.at_rest()
        self.server.completion("[[nan]]")
        after = {r: self.server.finished(r) - n for r, n in before.items()}
        self.assertEqual(after, {"stop": 2, "length": 1, "abort": 3, "error": 1})

    def test_MET_02_no_label_from_requests(self):
        self.server.completion("[[97]]")
        self.server.request("GET", "/v1/models/a")
        self.server.request("GET", "/a")
        self.server.post("/a", {})
        before = set(self.server.metrics())
        for i in range(250):
            self.server.completion("a", model=f"m{i}", user=f"u{i}")
            self.server.request("GET", f"/v1/models/m{i}")
            self.server.request("GET", f"/path{i}", headers={"X-Request-Id": f"id{i}"})
            self.server.post(f"/path{i}", {})
        after = set(self.server.metrics())
        self.assertEqual({s for s in after - before if "4xx" not in s}, set())
        self.assertLessEqual(len(after - before), 1)

    def test_MET_03_counters_stand_still_and_never_fall(self):
        def counters():
            return {s: v for s, v in self.server.metrics().items()
                    if ("_total" in s or "_bucket" in s or "_count" in s)
                    and not s.startswith("process_")}
        self.server.completion("[[97]]")
        self.server.at_rest()
        idle = counters()
        for _ in range(4):
            time.sleep(0.3)
            self.assertEqual(counters(), idle)
        thread = threading.Thread(target=self.server.completion, args=("[[97]]*",),
                                  kwargs={"max_tokens": 300})
        thread.start()
        last = idle
        while thread.is_alive():
            now = counters()
            for series, value in last.items():
                self.assertGreaterEqual(now[series], value, series)
            last = now
        thread.join()

    def test_families(self):
        text = self.server.request("GET", "/metrics")[2]
        types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
        for name, kind in (("vllm:num_requests_running", "gauge"),
                           ("vllm:num_requests_waiting", "gauge"),
                           ("vllm:kv_cache_usage_perc", "gauge"),
                           ("vllm:cache_config_info", "gauge"),
                           ("vllm:prompt_tokens_total", "counter"),
                           ("vllm:generation_tokens_total", "counter"),
                           ("vllm:request_success_total", "counter"),
                           ("vllm:time_to_first_token_seconds", "histogram"),
                           ("vllm:inter_token_latency_seconds", "histogram"),
                           ("vllm:e2e_request_latency_seconds", "histogram"),
                           ("vllm:request_params_max_tokens", "histogram"),
                           ("vllm:iteration_tokens_total", "histogram"),
                           ("quern_build_info", "gauge"),
                           ("http_requests_total", "counter")):
            self.assertEqual(types.get(name), kind, name)


if __name__ == "__main__":
    unittest.main()
