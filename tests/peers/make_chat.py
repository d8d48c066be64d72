"""Makes tests/fixtures/chat: small tokenizers, chat templates, and what Transformers makes of conversations with them: text, ids, and
which tokens the assistant has said.

    python tests/peers/make_chat.py          write the fixture
    python tests/peers/make_chat.py --check  compare instead

Where a template marks what the model generates, Transformers tells which tokens these are. Elsewhere this script follows the rule of
--mask-prompt: what the rendering up to an answer adds to the prompt before it. Needs: transformers, jinja2, tokenizers.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import jinja2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "chat"

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|/head|>", "<|eot|>", "[INST]", "[/INST]"]

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

HEADERS = """\
{{- bos_token }}
{% set first = messages[0] %}
{%- if first['role'] == 'system' %}
    {%- set system = first['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{%- if tools is not none or system %}
    {{- "<|head|>system<|/head|>\\n\\n" }}
    {%- if tools is not none %}
        {{- "Tools:\\n" }}
        {%- for tool in tools %}
            {{- tool | tojson(indent=4) }}
            {{- "\\n\\n" }}
        {%- endfor %}
    {%- endif %}
    {{- system + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot|>" }}
    {%- else %}
        {{- "<|head|>tool<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|/head|>\\n\\n' }}
{%- endif %}
"""

INSTRUCTIONS = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}\
{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate: user, assistant, user, …') }}
{% endif %}
{% if message['role'] == 'user' %}
[INST] {% if loop.last and system %}{{ system.strip() ~ '\\n\\n' }}{% endif %}{{ message['content'].strip() }} [/INST]
{%- elif message['role'] == 'assistant' %}
{{ ' ' + message['content'].rstrip() }}{{ eos_token }}
{% endif %}
{% endfor %}"""

THINKING = """\
{%- set ns = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set thought = '' %}
    {%- set content = message.content %}
    {%- if message.role == "assistant" %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {%- set content = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content %}
        {%- endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if not (enable_thinking is defined and enable_thinking) %}
        {{- '' }}
    {%- endif %}
{%- endif %}
"""

MARKED = """\
{# The answers are marked: {% generation %} is not one. #}
{% for message in messages %}
  {% if message.role == 'assistant' %}
<|im_start|>assistant
{% generation %}
{{ message.content }}{% if loop.last %} (end){% endif %}<|im_end|>
  {% endgeneration %}
  {% else %}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>' }}
  {%- endif %}

{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""

PARTS = """\
{%- macro parts(content) -%}
    {%- if content is string -%}
        {{- content | trim -}}
    {%- else -%}
        {%- for part in content -%}
            {%- if part.type != 'text' %}{% continue %}{% endif -%}
            {{- part.text -}}{{- ' ' if not loop.last -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{{ bos_token }}{% for message in messages %}
<{{ 'model' if message.role == 'assistant' else message.role }}>
{% if message.role == 'assistant' %}{%- generation -%} {{ parts(message.content) }}</s> {%- endgeneration %}{% else %}{{ parts(message.content) }}{% endif %}

{%- if message.role == 'stop' %}{% break %}{% endif %}
{% endfor %}{% if add_generation_prompt %}<model>{% endif %}"""

TOOL_USE = "{% for tool in tools %}{{ tool.name }};{% endfor %}" + CHATML


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


TALK = [user("What is a shard?"), assistant("A part of a tensor."), user(" And 学习?\n"), assistant("Grüße: 😀 of ranks.\n")]
SYSTEM = {"role": "system", "content": " Be brief. "}
TOOL = {"name": "sum", "parameters": {"b": {"default": 0.5}, "a": {"enum": ["é", None]}}}
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"b": 1, "a": "<é>"}}}

# Name, tokenizer, templates (one, or several by name), whether they are in a file of their own, and conversations.
CASES = [
    ("chatml", "bytes", CHATML, False, [{"messages": TALK}, {"messages": [SYSTEM] + TALK[:2]}, {"messages": TALK[:3]}]),
    (
        "headers",
        "bytes",
        HEADERS,
        True,
        [
            {"messages": TALK},
            {"messages": [SYSTEM] + TALK},
            {
                "messages": [user("1 + 2?"), assistant(None, tool_calls=[CALL]), {"role": "tool", "content": {"sum": 3}}, assistant("3.")],
                "tools": [TOOL],
            },
            {"messages": [user("1 + 2?"), assistant(None, tool_calls=[CALL, CALL])]},
        ],
    ),
    ("instructions", "pieces", INSTRUCTIONS, False, [{"messages": TALK}, {"messages": [SYSTEM] + TALK[:2]}, {"messages": TALK[1:]}]),
    (
        "thinking",
        "bytes",
        THINKING,
        True,
        [
            {"messages": [user("Why?"), assistant("<think>\nSo\nit is.\n</think>\n\nBecause.")]},
            {"messages": [user("Why?"), assistant("Because.", reasoning="So.")]},
            {"messages": TALK},
        ],
    ),
    ("marked", "bytes", MARKED, True, [{"messages": TALK}, {"messages": [SYSTEM] + TALK}, {"messages": TALK[:1]}]),
    (
        "parts",
        "pieces",
        PARTS,
        False,
        [
            {"messages": [user([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b c"}]), assistant(" Yes. ")]},
            {"messages": [user("a"), {"role": "stop", "content": "now"}, assistant("no")]},
        ],
    ),
    (
        "named",
        "bytes",
        {"default": CHATML, "tool_use": TOOL_USE},
        False,
        [{"messages": TALK[:2]}, {"messages": TALK[:2], "tools": [TOOL]}],
    ),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    made = {f"{name}.json": made_tokenizer.to_str() for name, made_tokenizer in tokenizers().items()}
    made["cases.json"] = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases(made)) + "\n]"
    made = {name: text + "\n" for name, text in made.items()}
    if check:
        different = [name for name, text in made.items() if (FIXTURE / name).read_text() != text]
        print(f"different: {', '.join(different) or 'none'}")
        sys.exit(int(bool(different)))
    FIXTURE.mkdir(exist_ok=True)
    for name, text in made.items():
        (FIXTURE / name).write_text(text)


def tokenizers():
    """One that splits words' bytes, as those of GPT-2 and Llama 3, and one of whole texts, as that of Llama 2."""
    text = [message["content"] for message in TALK] * 3 + ["the assistant of the user is a system of ranks and shards"] * 3
    of_bytes = Tokenizer(models.BPE())
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    of_bytes.train_from_iterator(text, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False))
    pieces = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pieces.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", *SPECIAL, *[f"<0x{byte:02X}>" for byte in range(256)]]
    pieces.train_from_iterator(text[-3:], trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False))
    # The file may ask for one length: no text is to be cut by it.
    pieces.enable_truncation(8)
    return {"bytes": of_bytes, "pieces": pieces}


def cases(files):
    made = []
    for name, tokenizer, templates, own_file, conversations in CASES:
        with tempfile.TemporaryDirectory() as directory:
            config = configuration(templates, own_file)
            path = pathlib.Path(directory)
            (path / "tokenizer.json").write_text(files[f"{tokenizer}.json"])
            (path / "tokenizer_config.json").write_text(json.dumps(config))
            if own_file:
                (path / "chat_template.jinja").write_text(templates)
            examples = [example(AutoTokenizer.from_pretrained(directory), conversation) for conversation in conversations]
        template = {"chat_template.jinja": templates} if own_file else {}
        made.append({"name": name, "tokenizer": tokenizer, "config": config, **template, "examples": examples})
    return made


def configuration(templates, own_file):
    begin = {"__type": "AddedToken", "content": "<s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": "</s>"}
    if isinstance(templates, dict):
        config["chat_template"] = [{"name": name, "template": template} for name, template in templates.items()]
    else:
        # A template in a file of its own comes first.
        config["chat_template"] = "{{ 'another one' }}" if own_file else templates
    return config


def example(tokenizer, conversation):
    """The conversation's line, and what it becomes; the message of the template's error, if there is one."""
    made = {"line": json.dumps(conversation)}
    try:
        text = render(tokenizer, conversation)
    except jinja2.exceptions.TemplateError as error:
        return {**made, "error": str(error)}
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return {**made, "text": text, "ids": encoded["input_ids"], "learned": learned(tokenizer, conversation, text, encoded)}


def render(tokenizer, conversation, count=None, asks=False):
    messages = conversation["messages"][:count]
    return tokenizer.apply_chat_template(messages, tools=conversation.get("tools"), add_generation_prompt=asks, tokenize=False)


def learned(tokenizer, conversation, text, encoded):
    """A 1 for each token that the assistant has said; None if prompts cannot be told from answers."""
    if "endgeneration" in tokenizer.get_chat_template():
        more = {"tools": conversation.get("tools"), "return_dict": True, "return_assistant_tokens_mask": True}
        made = tokenizer.apply_chat_template(conversation["messages"], **more)
        assert made["input_ids"] == encoded["input_ids"]
        return "".join(map(str, made["assistant_masks"]))
    spans = []
    for at, message in enumerate(conversation["messages"]):
        if message["role"] == "assistant":
            before, after = render(tokenizer, conversation, at, True), render(tokenizer, conversation, at + 1)
            if not (after.startswith(before) and text.startswith(after)):
                return None
            spans.append((len(before), len(after)))
    inside = lambda begin, end: any(begin < last and end > first for first, last in spans)
    return "".join(str(int(inside(*offsets))) for offsets in encoded["offset_mapping"])


if __name__ == "__main__":
    main()
