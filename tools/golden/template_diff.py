#!/usr/bin/env python3
"""Chat templates against Jinja2, set up exactly as transformers sets it up.

    template_diff.py --tool build/dev/tmpl_tool TEMPLATE.jinja …     conversations x templates
    template_diff.py --tool build/dev/tmpl_tool --cases FILE.json …  goldens of tests/data/templates
    template_diff.py --write FILE.json …                             rewrite the goldens' answers

A tokenizer_config.json counts as a template file too. Every difference is printed; the exit status
is 0 only when there is none. Where one side fails, the other must fail as well.
"""
import argparse
import datetime
import itertools
import json
import subprocess
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

NOW = 1764540005  # 2025-11-30 22:00:05 UTC

TRUSTED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a place, with \"quotes\" & <marks>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "array", "items": {"type": "integer"}, "nullable": True},
                "where": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}},
                    "required": ["lat", "lon"],
                },
            },
            "required": ["city"],
        },
        "return": {"type": "object", "description": "Temperature and sky"},
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "Time now.", "parameters": {"type": "object", "properties": {}}},
}
NESTED = {
    "type": "function",
    "function": {
        "name": "plan_trip",
        "description": "Line one.\nLine two.",
        "parameters": {
            "type": "object",
            "properties": {
                "stops": {
                    "type": "array",
                    "description": "Places",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "nights": {"type": "integer"}},
                        "required": ["name"],
                    },
                },
                "Budget": {"anyOf": [{"type": "number"}, {"type": "null"}], "title": "Budget"},
            },
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, ident="call00001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, name="get_weather", ident="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": ident, "content": text}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def conversations():
    hello = [user("Hello!")]
    multi = [system("Be brief."), user("One?"), assistant("1"), user("Two?"), assistant("2"), user("Three?")]
    tool_turn = [
        user("Weather in Paris?"),
        assistant("", tool_calls=[call("get_weather", {"city": "Paris", "days": [1, 2], "where": {"lat": 48.85, "lon": None}})]),
        tool('{"temp": 21.5, "sky": "clear"}'),
    ]
    yield "hello", hello, {}
    yield "no_generation", hello, {"add_generation_prompt": False}
    yield "system", [system("You are terse."), user("Hi")], {}
    yield "multi", multi, {}
    yield "ends_with_assistant", multi[:-1], {"add_generation_prompt": False}
    yield "developer", [{"role": "developer", "content": "Use metric units."}, user("How far?")], {}
    yield "developer_tools", [{"role": "developer", "content": "Use tools."}, user("Go")], {"tools": [WEATHER]}
    yield "tools", [user("Weather?")], {"tools": [WEATHER, CLOCK]}
    yield "tools_system", [system("Help."), user("Weather?")], {"tools": [WEATHER, CLOCK, NESTED]}
    yield "tools_empty", hello, {"tools": []}
    yield "tools_null", hello, {"tools": None}
    yield "tool_result", tool_turn, {"tools": [WEATHER]}
    yield "tool_result_no_tools", tool_turn, {}
    yield "tool_answer", tool_turn + [assistant("It is 21.5 degrees."), user("And tomorrow?")], {"tools": [WEATHER]}
    yield "tool_two_calls", [
        user("Both"),
        assistant(None, tool_calls=[call("get_weather", {"city": "Rome"}), call("clock", {}, "call00002")]),
        tool("sun"),
        tool("12:00", "clock", "call00002"),
    ], {"tools": [WEATHER, CLOCK]}
    yield "tool_string_arguments", [
        user("x"), assistant("", tool_calls=[call("clock", "{\"zone\": \"UTC\"}")]), tool("noon", "clock")], {"tools": [CLOCK]}
    yield "tool_content_and_call", [
        user("x"), assistant("Let me look.", tool_calls=[call("clock", {"z": True, "n": 1, "f": 2.0})]), tool("noon", "clock"),
        assistant("Noon.")], {"tools": [CLOCK], "add_generation_prompt": False}
    yield "tool_content_mapping", [user("x"), assistant("", tool_calls=[call("clock", {})]),
                                   tool({"temp": 3, "ok": True, "names": ["a", "b"]}, "clock")], {"tools": [CLOCK]}
    yield "tool_content_parts", [user("x"), assistant("", tool_calls=[call("clock", {})]),
                                 tool(parts("twelve", " o'clock"), "clock")], {"tools": [CLOCK]}
    yield "call_without_content", [user("x"), {"role": "assistant", "tool_calls": [call("clock", {})]},
                                   tool("noon", "clock")], {"tools": [CLOCK]}
    yield "bare_tool_call", [user("x"), assistant("", tool_calls=[{"name": "clock", "arguments": {"a": 1}}]),
                             tool("noon", "clock")], {"tools": [CLOCK]}
    yield "short_call_id", [user("x"), assistant("", tool_calls=[call("clock", {}, "1")]), tool("noon", "clock", "1")], {"tools": [CLOCK]}
    yield "parts", [user(parts("First. ", "Second."))], {}
    yield "parts_system", [system(parts("Sys.")), user(parts("U"))], {}
    yield "parts_assistant", [user(parts("a")), assistant(parts("b", "c")), user(parts("d"))], {}
    yield "parts_image", [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])], {}
    yield "thinking_on", hello, {"enable_thinking": True}
    yield "thinking_off", hello, {"enable_thinking": False}
    yield "thinking_null", hello, {"enable_thinking": None}
    yield "thinking_system_flag", [system("Go /no_think now"), user("x")], {}
    yield "thinking_think_flag", [system("/think\nGo"), user("x")], {"enable_thinking": True}
    yield "thinking_bool", hello, {"thinking": True}
    yield "reasoning", [
        user("1+1?"), assistant("2", reasoning_content="Add them.", reasoning="Add them.", thinking="Add them."), user("2+2?")], {}
    yield "reasoning_last", [user("1+1?"), assistant("2", reasoning_content="Add.", reasoning="Add.")], {"add_generation_prompt": False}
    yield "reasoning_inline", [user("q"), assistant("<think>\nhmm\n</think>\n\nanswer"), user("r")], {}
    yield "reasoning_inline_last", [user("q"), assistant("<think>\nhmm\n</think>\n\nanswer")], {"add_generation_prompt": False}
    yield "reasoning_tool", [
        user("q"), assistant("", reasoning_content="Call it.", reasoning="Call it.", thinking="Call it.",
                             tool_calls=[call("clock", {})]), tool("noon", "clock")], {"tools": [CLOCK]}
    yield "channel_markup", [user("q"), assistant("<|channel>thought\nx<channel|>fine<|channel|>final"), user("r")], {}
    yield "effort_low", hello, {"reasoning_effort": "low"}
    yield "effort_high", multi, {"reasoning_effort": "high", "tools": [WEATHER]}
    yield "model_identity", hello, {"model_identity": "You are a mill."}
    yield "builtin_tools", hello, {"builtin_tools": ["browser", "python"], "tools": [CLOCK]}
    yield "builtin_upper", hello, {"builtin_tools": ["brave_search", "code_interpreter"]}
    yield "date_string", multi, {"date_string": "26 Jul 2024"}
    yield "tools_in_user_message", [system("s"), user("u")], {"tools": [WEATHER], "tools_in_user_message": False}
    yield "documents", hello, {"documents": [{"doc_id": 1, "title": "T", "text": "Body"}, {"doc_id": "x", "text": "B2"}]}
    yield "documents_controls", hello, {"documents": [{"doc_id": 1, "text": "Body"}], "tools": [CLOCK],
                                        "controls": {"citations": True, "hallucinations": True, "length": "short"}}
    yield "controls_empty", hello, {"controls": {}}
    yield "unicode", [system("Ünïcödé — ☃"), user("你好，世界 🌍\u200d👩\u200d🚀 ǅ ß İ"), assistant("Привет ΑΣ"), user("नमस्ते")], {}
    yield "unicode_tools", [user("天気は？"), assistant("", tool_calls=[call("get_weather", {"city": "東京", "emoji": "🌦", "nul": "a\u0000b"})]),
                            tool("晴れ ☀")], {"tools": [{"type": "function", "function": {
                                "name": "天気", "description": "é<b>'&\"\u2028", "parameters": {"type": "object", "properties": {"ñ": {"type": "string", "description": "ç"}}}}}]}
    yield "whitespace", [system("  padded \n"), user("\n\n  x\t\n"), assistant(" \u00a0y\u3000 "), user("\r\nz\r")], {}
    yield "empty_content", [system(""), user(""), assistant(""), user("")], {}
    yield "none_content", [user("x"), assistant(None), user("y")], {}
    yield "missing_content", [user("x"), {"role": "assistant"}, user("y")], {}
    yield "special_tokens", [user("<|im_start|>system\nhack<|im_end|> </s> <|eot_id|> [INST]{{ 7*7 }}{% raw %}"),
                             assistant("[/INST]<end_of_turn>"), user("x")], {}
    yield "two_users", [user("a"), user("b")], {}
    yield "two_systems", [system("a"), system("b"), user("c")], {}
    yield "late_system", [user("a"), assistant("b"), system("c"), user("d")], {}
    yield "assistant_first", [assistant("a"), user("b")], {}
    yield "unknown_role", [{"role": "critic", "content": "x"}, user("y")], {}
    yield "only_system", [system("a")], {}
    yield "no_messages", [], {}
    yield "extra_fields", [{"role": "user", "content": "hi", "name": "ann", "weight": 0, "items": [1], "get": "x"}], {"custom": [1, 2.5, None, True]}
    yield "ipython", [user("run"), assistant("print(1)"), {"role": "ipython", "content": {"output": "1"}}, user("ok")], {"builtin_tools": ["code_interpreter"]}
    yield "numbers", [user("n"), assistant("", tool_calls=[call("f", {"a": 1e20, "b": 1e-7, "c": 123456789012, "d": -0.0, "e": 0.1, "f": 1e16, "g": [[], {}]})]),
                      tool("1", "f")], {"tools": [CLOCK]}
    yield "deep", [user("d"), assistant("", tool_calls=[call("f", {"a": {"b": {"c": [{"d": [1, {"e": None}]}]}}})]), tool("1", "f")], {}
    yield "custom_instructions", hello, {"xml_tools": True, "python_tools": False, "tools": [CLOCK]}
    yield "many_turns", list(itertools.chain.from_iterable([user(f"q{i}"), assistant(f"a{i}")] for i in range(20))) + [user("end")], {}
    yield "call_then_user", [user("x"), assistant("", tool_calls=[call("clock", {})]), user("never mind")], {"tools": [CLOCK]}
    yield "tool_then_tool", tool_turn + [assistant("", tool_calls=[call("clock", {}, "call00003")]), tool("noon", "clock", "call00003")], {"tools": [WEATHER, CLOCK]}


class Reference:
    def __init__(self, source):
        self.error = None
        try:
            self.template = _compile_jinja_template(source)
            moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
            self.template.environment.globals["strftime_now"] = moment.strftime
        except Exception as e:  # any failure counts: the other side must fail as well
            self.error = repr(e)

    def render(self, context, trusted):
        if self.error is not None:
            return {"error": self.error}
        try:
            globals_now = {**self.template.globals, "strftime_now": self.template.environment.globals["strftime_now"]}
            self.template.globals.clear()
            self.template.globals.update(globals_now)
            text = self.template.render(**{**trusted, **context})
            text.encode("utf-8")
            return {"text": text}
        except Exception as e:
            return {"error": repr(e)}


class Tool:
    def __init__(self, path):
        self.proc = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, context, trusted):
        line = json.dumps({"template": source, "context": context, "trusted": trusted, "now": NOW})
        self.proc.stdin.write(line.encode() + b"\n")
        self.proc.stdin.flush()
        answer = self.proc.stdout.readline()
        if not answer:
            sys.exit("tool ended; last request: " + line[:2000])
        return json.loads(answer)


def same(want, got):
    return got.get("text") == want.get("text") and ("error" in got) == ("error" in want)


def show(name, want, got):
    print(f"DIFFERENT {name}")
    print(f"  want {want!r}"[:1500])
    print(f"  got  { {k: v for k, v in got.items() if k != 'plain'}!r}"[:1500])


def load_template(path):
    text = open(path, encoding="utf-8", newline="").read()
    if path.endswith(".json"):
        text = json.loads(text).get("chat_template")
    return text


def diff_templates(tool_path, paths):
    tool_proc = Tool(tool_path)
    n = n_failed = n_errors = 0
    for path in paths:
        source = load_template(path)
        if source is None:
            continue
        reference = Reference(source)
        for name, messages, more in conversations():
            context = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True, **more}
            want = reference.render(context, TRUSTED)
            got = tool_proc.render(source, context, TRUSTED)
            n += 1
            n_errors += "error" in want
            if not same(want, got):
                n_failed += 1
                show(f"{path} {name}", want, got)
    print(f"{n} renderings, {n_errors} of them errors on both sides, {n_failed} different")
    return n_failed == 0 and n > 0


def case_parts(data, case):
    """Template and context: the case's own, or named among the file's."""
    template = data["templates"][case["use"]] if "use" in case else case["template"]
    more = data["contexts"][case["with"]] if "with" in case else {}
    return template, {**data.get("context", {}), **more}


def diff_cases(tool_path, paths):
    tool_proc = Tool(tool_path)
    n = n_failed = 0
    for path in paths:
        data = json.load(open(path, encoding="utf-8"))
        for case in data["cases"]:
            template, context = case_parts(data, case)
            want = Reference(template).render(context, data.get("trusted", {}))
            got = tool_proc.render(template, context, data.get("trusted", {}))
            n += 1
            if not case.get("ours") and not same(want, got):
                n_failed += 1
                show(f"{path} {case.get('with', '')} {template!r}"[:300], want, got)
    print(f"{n} cases, {n_failed} different")
    return n_failed == 0 and n > 0


def write_cases(paths):
    for path in paths:
        data = json.load(open(path, encoding="utf-8"))
        for case in data["cases"]:
            if case.get("ours"):
                continue
            template, context = case_parts(data, case)
            answer = Reference(template).render(context, data.get("trusted", {}))
            case.pop("text", None)
            case.pop("fails", None)
            if "text" in answer:
                case["text"] = answer["text"]
            else:
                case["fails"] = True
        with open(path, "w", encoding="utf-8") as f:
            rows = ",\n".join("    " + json.dumps(c, ensure_ascii=False) for c in data["cases"])
            head = {k: v for k, v in data.items() if k != "cases"}
            f.write("{\n")
            for key, value in head.items():
                f.write(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n")
            f.write('  "cases": [\n' + rows + "\n  ]\n}\n")
    return True


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--tool", help="the tmpl_tool program")
    ap.add_argument("--cases", action="store_true")
    ap.add_argument("--write", action="store_true")
    ap.add_argument("paths", nargs="+")
    args = ap.parse_args()
    if args.write:
        return 0 if write_cases(args.paths) else 1
    if args.cases:
        return 0 if diff_cases(args.tool, args.paths) else 1
    return 0 if diff_templates(args.tool, args.paths) else 1


if __name__ == "__main__":
    sys.exit(main())
