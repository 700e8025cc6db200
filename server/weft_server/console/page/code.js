// The same call as a program of one's own. No token is written into it: it is read from WEFT_TOKEN.
import { make, tabs } from "./dom.js";
import { methodUrl, token, urlOf } from "./calls.js";
import { T } from "./texts.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
// What is Python already. A JSON Schema may have any key.
class Code { constructor(text) { this.text = text; } }
const code = (text) => new Code(text);
// JSON's texts and numbers are Python's.
function python(value) {
  if (value instanceof Code) return value.text;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
const called = (name, pairs) => `${name}(${pairs.map(([key, value]) => (key ? `${key}=` : "") + python(value)).join(", ")})`;

// `files`: names by their place in the message's text, in the order in which they come.
export function codeOf(verb, message, files, facts) {
  return { curl: curlOf(verb, message, files), python: pythonOf(verb, message, files, facts), openai: openaiOf(verb, message, files, facts) };
}

const HOLE = "\u0000a file\u0000";
// The message without its files, which programs read from disk.
function emptied(message) {
  return JSON.parse(JSON.stringify(message, (key, value) => key === "data" && typeof value === "string" ? HOLE : value));
}

function curlOf(verb, message, files) {
  const to = [`curl ${quoted(methodUrl(verb.method))}`, "-H 'content-type: application/json'", ...(token.get() ? ['-H "authorization: Bearer $WEFT_TOKEN"'] : [])].join(" \\\n  ");
  const parts = JSON.stringify(emptied(message)).split(JSON.stringify(HOLE).slice(1, -1));
  if (parts.length === 1) return `${to} \\\n  -d ${quoted(parts[0])}`;
  const pieces = parts.flatMap((part, number) => [`printf %s ${quoted(part)}`, ...(number < files.length ? [`base64 < ${quoted(files[number])} | tr -d '\\n'`] : [])]);
  return `{ ${pieces.join("; \\\n  ")}; } |\n  ${to} --data-binary @-`;
}

// What stands before the keywords of each method.
const FIRST = { translate: ["text"], caption: ["image"], answer: ["image", "text"], transcribe: ["audio"], generate: ["text"], classify: ["text"], tag: ["text"],
  extract: ["context", "question"], fill: ["text"], score: ["text", "image", "audio", "targetText"], tokenize: ["text"] };
const NAMES = { fill: "fill_mask", chat: "generate" };

function pythonOf(verb, message, files, { grpcPort, rows }) {
  const { model, decoding, explain, inputs, messages, ...rest } = emptied(message), left = [...files];
  const file = () => { const name = left.shift(); return verb.name === "score" ? code(`Path(${JSON.stringify(name)})`) : name; };
  const plain = (value) => value?.data === HOLE ? file() : value;
  const first = (FIRST[verb.name] ?? []).filter((name) => name in rest).map((name) => ["", plain(rest[name])]);
  const others = Object.entries(rest).filter(([name]) => !FIRST[verb.name]?.includes(name)).map(([name, value]) => [snake(name), plain(value)]);
  const texts = inputs?.filter((each) => "text" in each).map(({ text }) => text) ?? [], images = inputs?.filter((each) => "image" in each).map(file) ?? [];
  const args = [...first, ...(messages ? [["messages", messages.turns.map(({ role, content, parts }) => ({ role, content: content ?? parts.map((part) => part.image ? code(`Path(${JSON.stringify(left.shift())})`) : part.text) }))]] : []), ...(texts.length ? [["texts", texts]] : []), ...(images.length ? [["images", images]] : []),
    ["model", model.name], ["model_version", model.version], ...others,
    ...(explain ? [["explain", Object.keys(explain).length ? code(called("weft.Explain", Object.entries(explain))) : true]] : []),
    ...(decoding ? [["decoding", code(decodingCode(decoding, rows))]] : [])];
  const isTls = location.protocol === "https:", to = [["", `${location.hostname}:${grpcPort}`], ...(token.get() ? [["token", code('os.environ["WEFT_TOKEN"]')]] : []),
    ...(isTls ? [["credentials", code("grpc.ssl_channel_credentials()")]] : [])];
  const imports = [token.get() && "import os", ["score", "chat"].includes(verb.name) && files.length && "from pathlib import Path", isTls && "import grpc", "import weft"].filter(Boolean);
  const call = called(`client.${NAMES[verb.name] ?? verb.name}`, args);
  return `${imports.join("\n")}\n\nwith ${called("weft.Client", to)} as client:\n    answer = ${call}\n    print(${verb.writes ? "answer.text" : "answer"})\n`;
}

function decodingCode({ greedy, sampling, beams, alternatives, penalties, constraint, ...rest }, rows) {
  const other = Object.fromEntries(rows.map(({ path, name }) => [path, name]));
  const inside = (group, values) => Object.entries(values).map(([name, value]) => [other[`${group}.${snake(name)}`] ?? snake(name), value]);
  const strategy = greedy ? called("weft.Greedy", []) : sampling ? called("weft.Sampling", inside("sampling", sampling))
    : beams ? called("weft.Beams", inside("beams", beams)) : alternatives ? called("weft.Alternatives", []) : "";
  return called("weft.Decoding", [...Object.entries(rest).map(([name, value]) => [snake(name), Array.isArray(value) ? code(`tuple(${python(value)})`) : value]),
    ...inside("penalties", penalties ?? {}), ...inside("constraint", constraint ?? {}), ...(strategy ? [["strategy", code(strategy)]] : [])]);
}

const OPENAI = {
  generate: ["client.completions.create", "answer.choices[0].text"], chat: ["client.chat.completions.create", "answer.choices[0].message.content"],
  translate: ["client.chat.completions.create", "answer.choices[0].message.content"], caption: ["client.chat.completions.create", "answer.choices[0].message.content"],
  answer: ["client.chat.completions.create", "answer.choices[0].message.content"], transcribe: ["client.audio.transcriptions.create", "answer.text"], english: ["client.audio.translations.create", "answer.text"],
  embed: ["client.embeddings.create", "[each.embedding for each in answer.data]"],
};
const NAMED = ["temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "stop", "max_tokens", "n"], NAMED_OF_SOUND = ["temperature", "language"];
// What its API cannot ask of a recording.
const NOT_OF_SOUND = ["stop", "constraint", "minNewTokens"];

function openaiOf(verb, message, files, { rows }) {
  const [call, print] = OPENAI[message.toEnglish ? "english" : verb.name] ?? [];
  // It has neither alternatives, nor vectors of pictures.
  if (!call || message.decoding?.alternatives || message.inputs?.some((each) => each.image)) return "";
  const { model, decoding = {}, text, messages, inputs, ...rest } = emptied(message), name = `${model.name}@${model.version}`;
  if (rest.audio && ((rest.toEnglish && rest.language) || NOT_OF_SOUND.some((each) => each in decoding))) return "";
  const left = [...files], says = (said) => ({ type: "text", text: said });
  const picture = () => code(`{"type": "image_url", "image_url": {"url": "data:;base64," + b64encode(Path(${JSON.stringify(left.shift())}).read_bytes()).decode()}}`);
  const content = rest.image ? [...(text ? [says(text)] : []), picture()] : text;
  const turns = messages?.turns.map(({ role, content: said, parts }) => ({ role, content: said ?? parts.map((part) => part.image ? picture() : says(part.text)) }));
  const asked = inputs ? [["input", inputs.map((each) => each.text)]] : verb.name === "generate" ? [["prompt", text]]
    : rest.audio ? [["file", code(`Path(${JSON.stringify(files[0])})`)]] : [["messages", turns ?? [{ role: "user", content }]]];
  const settings = { ...openaiDecoding(decoding, rows), ...(rest.language && { language: rest.language }) };
  for (const each of ["sourceLanguage", "targetLanguage", "splitSentences"]) if (rest[each]) settings[snake(each)] = rest[each];
  const isNamed = ([key]) => (rest.audio ? NAMED_OF_SOUND : NAMED).includes(key), all = Object.entries(settings);
  const named = all.filter(isNamed), extra = Object.fromEntries(all.filter((each) => !isNamed(each)));
  const args = [["model", name], ...asked, ...named, ...(Object.keys(extra).length ? [["extra_body", extra]] : [])];
  const key = token.get() ? code('os.environ["WEFT_TOKEN"]') : "none";
  const imports = [token.get() && "import os", (rest.image || messages) && files.length && "from base64 import b64encode", files.length && "from pathlib import Path", "import openai"].filter(Boolean);
  return `${imports.join("\n")}\n\n${called("client = openai.OpenAI", [["base_url", urlOf("v1")], ["api_key", key]])}\nanswer = ${called(call, args)}\nprint(${print})\n`;
}

function openaiDecoding({ greedy, sampling, beams, penalties = {}, constraint = {}, ...rest }, rows) {
  const other = Object.fromEntries(rows.map(({ path, name }) => [path, name])), made = {};
  const take = (group, values) => { for (const [name, value] of Object.entries(values)) made[other[`${group}.${snake(name)}`] ?? snake(name)] = value; };
  take("penalties", penalties);
  if (greedy) made.temperature = 0;
  if (sampling) { made.temperature = 1; take("sampling", sampling); }
  if (beams) { made.num_beams = 4; take("beams", beams); }
  const names = { maxNewTokens: "max_tokens", minNewTokens: "min_tokens", numOutputs: "n" };
  for (const [name, value] of Object.entries(rest)) made[names[name] ?? snake(name)] = value;
  if (constraint.jsonSchema) made.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(constraint.jsonSchema) } };
  if (constraint.regex) made.regex = constraint.regex;
  return made;
}

// Only a page by https or of this machine has a clipboard, and a browser may refuse it.
async function isCopied(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { return false; }
}

export function codePart(codes, files) {
  const pre = make("pre", { tabIndex: 0 }), copy = make("button", { type: "button" }, T.code.copy);
  const choose = (name) => { pre.textContent = codes[name] || T.code.none; copy.disabled = !codes[name]; pre.dataset.name = name; };
  copy.addEventListener("click", async () => {
    copy.textContent = await isCopied(pre.textContent) ? T.code.copied : T.code.marked;
    if (copy.textContent === T.code.marked) getSelection().selectAllChildren(pre);
    setTimeout(() => { copy.textContent = T.code.copy; }, 1500);
  });
  choose("curl");
  const ways = ["curl", "python", "openai"].map((name) => [name, T.code[name]]);
  return make("section", { className: "part code" }, make("h3", {}, T.code.title), make("div", { className: "row" }, tabs(T.code.title, ways, "curl", choose), copy), pre,
    files.length > 0 && make("p", { className: "quiet" }, T.code.files(files.join(", "))));
}
