// How an answer is made: the controls of a Decoding, made of the server's own table, and of what is told of the answer.
import { labelled, make, options } from "./dom.js";
import { fieldControl } from "./fields.js";
import { T } from "./texts.js";
import { explains } from "./verbs.js";

const NUM_TOPS = 5;
const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
const get = (object, path) => path.split(".").reduce((inside, part) => inside?.[camel(part)], object);

function put(object, path, value) {
  const parts = path.split("."), last = parts.pop();
  let inside = object;
  for (const part of parts) inside = inside[camel(part)] ??= {};
  inside[camel(last)] = value;
}

// Numbers that the table does not have, for their ranges are the model's. A recording has one answer.
const ofModel = (verb, { limits = {} }) => [
  { path: "max_new_tokens", least: 1, most: limits.maxNewTokens }, { path: "min_new_tokens", least: 0, most: limits.maxNewTokens },
  { path: "beams.num_beams", least: 1, most: limits.maxBeams }, { path: "num_outputs", least: 1, most: Math.max(limits.maxOutputs ?? 1, limits.maxBeams ?? 1) },
].filter(({ path }) => path !== "num_outputs" || verb.name !== "transcribe").map((row) => ({ kind: "int", name: row.path.split(".").pop(), help: T.settings[row.path.split(".").pop()], range: `${row.least}..${row.most}`, ...row }));

function numberControl(row, model) {
  const chosen = get(model.decoding, row.path) ?? row.default;
  const help = [row.help, row.range && T.settings.range(row.range)].filter(Boolean).join(" ");
  const control = fieldControl(row.name, "number", { least: row.least, most: row.most, step: row.kind === "int" ? 1 : "any", help, placeholder: chosen ?? "" });
  return { ...control, path: row.path };
}

export function settingsOf(verb, model, table, again) {
  const box = make("details", { className: "settings" }, make("summary", {}, T.settings.title)), grid = make("div", { className: "grid" });
  const parts = [];
  if (explains(verb, model)) parts.push(explainPart(model, again));
  if (verb.writes) parts.push(scoresPart(), decodingPart(verb, model, table));
  if (verb.name === "score" && !model.vectorKinds) parts.push(topsPart());
  const controls = parts.flatMap((part) => part.controls ?? []);
  grid.append(...parts.flatMap((part) => part.elements));
  box.append(grid);
  box.hidden = !grid.children.length;
  return {
    element: box,
    rows: table,
    // `seconds` is how long its recording is.
    fill: (message, seconds = 0) => { for (const part of parts) part.fill(message, seconds); },
    controls,
    // The one that an error names, such as decoding.sampling.temperature, or decoding.stop[0].
    find: (field) => controls.find((each) => `decoding.${each.path}` === field.replace(/\[.*/, "")),
    open: () => { box.open = true; },
  };
}

function explainPart(model, again) {
  const asks = make("input", { type: "checkbox", checked: true }), heads = model.attentionHeads ?? [], windowS = model.limits?.windowS || Infinity;
  const layer = options(make("select"), [["", model.defaultAttentionLayer === undefined ? T.settings.rollout : `${T.settings.standard} (${model.defaultAttentionLayer})`],
    ...heads.map((_, number) => [String(number), String(number)])]);
  const head = make("select");
  const ofLayer = () => options(head, [["", T.settings.average], ...Array.from({ length: heads[layer.value] ?? 0 }, (_, number) => [String(number), String(number)])]);
  layer.addEventListener("change", () => { ofLayer(); again(); });
  head.addEventListener("change", again);
  ofLayer();
  return {
    elements: [labelled(T.settings.explain, asks, T.settings.explainHelp + (windowS < Infinity ? T.settings.explainWindow(windowS) : "")), labelled(T.settings.layer, layer), labelled(T.settings.head, head)],
    fill: (message, seconds) => {
      // A model of pictures beside texts says it of pictures alone.
      const isBesidePictures = model.task === "TASK_MATCH" && message.inputs?.[0].text;
      if (!asks.checked || seconds > windowS || message.splitSentences || (message.inputs?.length ?? 1) > 1 || isBesidePictures) return;
      message.explain = { ...(layer.value && { layer: Number(layer.value) }), ...(head.value && { head: Number(head.value) }) };
    },
  };
}

function scoresPart() {
  const asks = make("input", { type: "checkbox", checked: true });
  return {
    elements: [labelled(T.settings.scores, asks, T.settings.scoresHelp)],
    fill: (message) => { if (asks.checked) Object.assign(message, { returnScores: true, numTopTokens: NUM_TOPS }); },
  };
}

// What is scored has no answer of its own: without these, a click on a token would tell nothing.
const topsPart = () => ({ elements: [], fill: (message) => { message.numTopTokens = NUM_TOPS; } });

function decodingPart(verb, model, table) {
  const strategy = options(make("select"), Object.entries(T.settings.strategies));
  const controls = [...ofModel(verb, model), ...table].map((row) => numberControl(row, model));
  const texts = ["stop", ...(model.takesConstraints ? ["json_schema", "regex"] : [])]
    .map((name) => ({ ...fieldControl(name, name === "regex" ? "line" : name === "stop" ? "lines" : "text", { help: T.settings[name] }), path: name === "stop" ? name : `constraint.${name}` }));
  const ofStrategy = ({ path }) => !/^(sampling|beams)\./.test(path) || path.startsWith(`${strategy.value}.`);
  const show = () => { for (const each of controls) each.element.hidden = !ofStrategy(each); };
  strategy.addEventListener("change", show);
  show();
  const every = [...controls, ...texts];
  return {
    elements: [labelled(T.settings.strategy, strategy), ...every.map((each) => each.element)],
    controls: every,
    fill: (message) => {
      const decoding = strategy.value ? { [strategy.value]: {} } : {};
      for (const each of every.filter(ofStrategy)) {
        const value = each.value();
        if (value !== undefined) put(decoding, each.path, value);
      }
      if (Object.keys(decoding).length) message.decoding = decoding;
    },
  };
}
