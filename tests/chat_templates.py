"""Chat templates of the usual shapes, in our own words: what checkpoints bring is written in these ways."""

CHATML = """\
{%- if messages[0].role == 'system' -%}
    {%- set told, rest = messages[0].content, messages[1:] -%}
{%- else -%}
    {%- set told, rest = 'You help with texts.', messages -%}
{%- endif -%}
{{- '<|im_start|>system\\n' + told + '<|im_end|>\\n' }}
{%- for message in rest %}
    {{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ (message.content | trim) ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# One message of the system goes into the first one of the user.
LLAMA_2 = """\
{% if messages[0]['role'] == 'system' %}
{% set turns = messages[1:] %}
{% set told = '<<SYS>>\\n' + messages[0]['content'].strip() + '\\n<</SYS>>\\n\\n' %}
{% else %}
{% set turns = messages %}
{% set told = '' %}
{% endif %}
{% for turn in turns %}
{% if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must go user, assistant, user, assistant, and so on') }}
{% endif %}
{% set content = told + turn['content'] if loop.first else turn['content'] %}
{% if turn['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif turn['role'] == 'assistant' %}
{{ ' ' + content.strip() + ' ' + eos_token }}
{% endif %}
{% endfor %}"""

# With a date, headers, tools that are never there, and a macro.
LLAMA_3 = """\
{{- bos_token }}
{%- if not date is defined %}
    {%- set date = strftime_now("%d %b %Y") %}
{%- endif %}
{%- macro header(role) -%}
<|start_header_id|>{{ role }}<|end_header_id|>

{% endmacro %}
{%- if tools is not none %}{{- raise_exception("no tools here") }}{%- endif %}
{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | join('\\n\\n') %}
{{- header('system') ~ 'Today: ' ~ date }}
{%- if system %}{{ '\\n\\n' }}{{ system | trim }}{% endif %}{{ '<|eot_id|>' }}
{%- for message in messages if message.role != 'system' %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {{- message.tool_calls | tojson(indent=4) }}
    {%- else %}
        {{- header(message['role']) + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- header('assistant') }}
{%- endif %}
"""

GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}
{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 is even) -%}
{{ raise_exception('Roles must alternate: user, model') }}
{%- endif -%}
{% if message['role'] == 'assistant' %}{% set role = 'model' %}
{% else %}{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

# Namespaces, loop controls, and the last message looked at from behind.
MISTRAL = """\
{%- set ns = namespace(index=0, last=none) -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}{%- continue -%}{%- endif -%}
    {%- if message.role not in ('user', 'assistant') -%}
        {{- raise_exception("Only user and assistant speak here, not " ~ message.role ~ "!") -}}
    {%- endif -%}
    {%- if (message.role == 'user') is ne (ns.index is divisibleby 2) -%}
        {{- raise_exception('After the system, user and assistant must take turns') -}}
    {%- endif -%}
    {%- set ns.index = ns.index + 1 -%}
    {%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {%- if loop.index0 == ns.last and messages[0].role == 'system' -%}
            {{- '[INST] ' ~ messages[0].content ~ '\\n\\n' ~ message.content ~ '[/INST]' -}}
        {%- else -%}
            {{- '[INST] ' ~ message.content ~ '[/INST]' -}}
        {%- endif -%}
    {%- elif message.role == 'assistant' -%}
        {%- generation -%}{{- ' ' ~ message.content | replace('  ', ' ') ~ eos_token -}}{%- endgeneration -%}
    {%- endif -%}
{%- endfor -%}"""

ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

# Thoughts are cut out of earlier answers, and the last question is searched for backwards.
THINKER = """\
{%- set ns = namespace(found=false, at=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.found and message.role == "user" and message.content is string
        and not (message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.found, ns.at = true, index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.at or loop.last %}
            {%- set content = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content %}
        {%- endif %}
    {%- endif %}
    {{- '<|' + message.role | upper + '|>' + content + ('' if loop.last else '\\n') }}
{%- endfor %}
{%- set closing %}<|ASSISTANT|>
{% endset %}
{%- if add_generation_prompt %}{{- '\\n' ~ closing }}{%- endif %}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
"""

# Words of Jinja that are seldom used, all in one.
RARE = """\
{%- macro wrapped(tag) -%}<{{ tag }}>{{ caller(tag) }}</{{ tag }}>{%- endmacro -%}
{%- with names = dict(user='U', assistant='A') -%}
{%- for message in messages recursive -%}
    {%- if message is mapping -%}
        {%- call(tag) wrapped(names.get(message.role, 'X')) -%}
            {{- message.content | indent(2) ~ tag | lower ~ loop.revindex ~ loop.depth -}}
        {%- endcall -%}
        {{- loop([1, 2, 3][:2]) -}}
    {%- else -%}
        {{- message * 2 + 2 ** 3 - 7 // 2 -}}
        {%- if message == 2 -%}{%- break -%}{%- endif -%}
    {%- endif -%}
{%- else -%}nobody{%- endfor -%}
{%- endwith -%}
{%- filter upper %}{{ messages | map(attribute='role') | unique | sort(reverse=true) | list }}{% endfilter %}
{{ messages | tojson }} {{ messages[0] | tojson(indent=2, sort_keys=true) }} {{ {'a': [1, none, 2.5]}.items() | list }}
{% for key, value in messages[0].items() %}{{ key }}={{ value | default('?', true) | e }};{% endfor %}
{{ messages[-1].content.split() | reverse | join(', ') }}{{ undefined_name }}{{ '-' * 3 }}{{ ['x'] * 2 }}
{{ 'a' if messages | length > 1 else 'b' }}{{ bos_token is defined }}{{ unk_token is defined }}{{ 7 % 4 }}{{ -1 | abs }}
{%- set parts = [] %}{% for message in messages %}{% set parts = parts + [loop.cycle('x', 'y')] %}{% endfor %}
{{- parts }}
"""

TEMPLATES = {
    "chatml": CHATML,
    "llama-2": LLAMA_2,
    "llama-3": LLAMA_3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "zephyr": ZEPHYR,
    "thinker": THINKER,
    "rare": RARE,
}

# Two ways to tell of functions, and of calls that were made.
HERMES = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
    {{- '\\n</tools>\\nWrite a call so:\\n<tool_call>\\n' }}
    {{- '{"name": <name>, "arguments": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content %}{{ '\\n' + message.content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {%- if call.function %}{% set call = call.function %}{% endif %}
        {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
        {{- call.arguments | tojson + '}\\n</tool_call>' }}
    {%- endfor %}
    {%- if message.role == 'tool' %}{{ '\\n(of ' ~ message.tool_call_id ~ ')' }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

LLAMA_3_TOOLS = """\
{{- bos_token }}
{%- if tools is not none %}
    {{- 'Respond in the format ' }}
    {{- '{"name": function name, "parameters": dictionary of argument name and its value}.\\n\\n' }}
    {%- for t in tools %}{{ t | tojson(indent=4) }}{{ '\\n\\n' }}{% endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}{{ raise_exception('One call at a time') }}{% endif %}
        {%- set called = message.tool_calls[0].function %}
        {{- '{"name": "' + called.name + '", "parameters": ' }}{{ called.arguments | tojson }}{{ '}<|eot_id|>' }}
    {%- elif message.role == 'tool' or message.role == 'ipython' %}
        {{- '<|ipython|>' }}{{ message.content | tojson }}
    {%- else %}
        {{- '<|' ~ message.role ~ '|>' ~ message.content | trim }}
    {%- endif %}
{%- endfor %}
"""

# With channels: what an assistant said stands in one, and how many there are is said first.
HARMONY = """\
{%- macro typed(schema) -%}
    {%- if schema.enum %}{{ '"' + schema.enum | join('" | "') + '"' }}
    {%- elif schema.type == 'array' %}{{ typed(schema['items'] or {}) + '[]' }}
    {%- elif schema.type == 'integer' %}{{ 'number' }}
    {%- else %}{{ schema.type or 'any' }}{% endif -%}
{%- endmacro -%}
{{- '<|start|>system<|message|>Today: ' + strftime_now('%Y-%m-%d') + '\\nReasoning: ' }}
{{- (reasoning_effort or 'medium') + '\\n# Valid channels: analysis, final.<|end|>' }}
{%- set called = namespace(name=none) %}
{%- if tools or messages[0].role in ['system', 'developer'] %}
    {{- '<|start|>developer<|message|>' }}
    {%- if messages[0].role in ['system', 'developer'] %}{{ '# Told\\n' + messages[0].content }}{% endif %}
    {%- for tool in tools or [] %}
        {{- '\\ntype ' + tool.function.name + ' = (_: {' }}
        {%- for name, schema in (tool.function.parameters.properties or {}).items() %}
            {{- name ~ ('' if name in (tool.function.parameters.required or []) else '?') }}
            {{- ': ' ~ typed(schema) ~ ', ' }}
        {%- endfor %}{{ '}) => any;' }}
    {%- endfor %}{{ '<|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {%- set call = message.tool_calls[0].function or message.tool_calls[0] %}
        {%- set called.name = call.name %}
        {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
        {{- call.arguments | tojson + '<|call|>' }}
    {%- elif message.role == 'assistant' %}
        {%- if '<|channel|>' in message.content %}{{ raise_exception('What was thought is not told.') }}{% endif %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'tool' %}
        {%- if called.name is none %}{{ raise_exception('Nobody called.') }}{% endif %}
        {{- '<|start|>functions.' + called.name + ' to=assistant<|channel|>commentary<|message|>' }}
        {{- message.content | tojson + '<|end|>' }}
    {%- elif message.role == 'user' %}{{ '<|start|>user<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

WITH_TOOLS = {"hermes": HERMES, "llama3": LLAMA_3_TOOLS, "harmony": HARMONY}
