// Controls of a message's fields. Each has an `element`, and `value()`: JSON, or undefined where nothing was given.
import { labelled, make, options } from "./dom.js";
import { base64, onPaste, pictureControl, soundControl } from "./files.js";
import { T } from "./texts.js";

const words = (input, read) => ({ input, value: () => input.value.trim() === "" ? undefined : read(input.value) });
const linesOf = (value) => value.split("\n").map((line) => line.trim()).filter(Boolean);
const area = (rows) => make("textarea", { rows, spellcheck: false });

const KINDS = {
  text: () => words(area(3), (value) => value),
  line: (_, more) => words(make("input", { placeholder: more.placeholder ?? "", autocomplete: "off" }), (value) => value),
  lines: () => words(area(4), linesOf),
  number: (_, more) => words(make("input", { type: "number", min: more.least ?? "", max: more.most ?? "", step: more.step ?? 1, placeholder: more.placeholder ?? "" }), Number),
  choice: (_, more) => words(options(make("select"), [["", T.theModels], ...more.choices.map((each) => [each, each])]), (value) => value),
  check: () => { const input = make("input", { type: "checkbox" }); return { input, value: () => input.checked || undefined }; },
  picture: pictureControl,
  sound: soundControl,
  pictures: picturesControl,
  chat: chatControl,
};

export function fieldControl(name, kind, more = {}, example = "") {
  const control = KINDS[kind](name, more);
  control.name_ = name;
  control.file = ["picture", "sound"].includes(kind);
  if (!control.element) control.element = labelled(more.label ?? T.fields[name] ?? name, control.input, more.help);
  else control.element = make("fieldset", {}, make("legend", {}, T.fields[name] ?? name), control.element);
  if (example && control.input.type !== "file") control.input.value = example;
  // Where an error names this field.
  control.blame = (is) => control.input?.setAttribute("aria-invalid", String(is));
  return control;
}

function picturesControl() {
  const input = make("input", { type: "file", accept: "image/png,image/jpeg,image/webp", multiple: true, "aria-label": T.fields.images });
  const shown = make("div", { className: "row" });
  const free = () => { for (const each of shown.children) URL.revokeObjectURL(each.src); };
  input.addEventListener("change", () => {
    free();
    shown.replaceChildren(...[...input.files].map((file) => make("img", { src: URL.createObjectURL(file), alt: file.name, className: "thumb" })));
  });
  const endPaste = onPaste("image/", (files) => {
    const given = new DataTransfer();
    for (const each of files) given.items.add(each);
    input.files = given.files;
    input.dispatchEvent(new Event("change"));
  });
  const clear = () => { free(); shown.replaceChildren(); input.value = ""; };
  const close = () => { free(); endPaste(); };
  const value = async () => input.files.length ? await Promise.all([...input.files].map(async (file) => ({ data: await base64(file) }))) : undefined;
  return { element: make("div", { className: "file" }, input, shown), input, value, clear, close, names: () => [...input.files].map((file) => file.name) };
}

// What is embedded is all of one kind: of texts and pictures, those that were given last. Texts come back when pictures go.
export function ofOneKind(controls) {
  const [texts, pictures] = ["inputs", "images"].map((name) => controls.find((each) => each.name_ === name));
  if (!texts || !pictures) return;
  let aside = "";
  pictures.input.addEventListener("change", () => {
    if (pictures.input.files.length) [aside, texts.input.value] = [texts.input.value || aside, ""];
    else texts.input.value ||= aside;
  });
  texts.input.addEventListener("input", () => texts.input.value.trim() && pictures.clear());
}

// What was said stays, so that the next message goes on with it.
function chatControl(_, { takesPictures }) {
  const log = make("ol", { className: "chat", "aria-label": T.verbs.chat }), input = area(2), picture = takesPictures ? pictureControl("image") : null;
  // By the message that has a picture: its file's name.
  const named = new WeakMap();
  let turns = [], sent = null;
  const textOf = ({ content, parts }) => content ?? parts.map(({ text = "" }) => text).join("");
  const thumb = (turn) => named.has(turn) && make("img", { src: `data:image/png;base64,${turn.parts[0].image.data}`, alt: named.get(turn), className: "thumb" });
  const tell = () => log.replaceChildren(...turns.map((turn) => make("li", { className: turn.role }, make("b", {}, turn.role === "user" ? T.you : T.model), thumb(turn), make("p", {}, textOf(turn)))));
  const anew = make("button", { type: "button", onclick: () => { [turns, sent] = [[], null]; tell(); } }, T.anew);
  const next = (text, image) => image ? { role: "user", parts: [{ image }, ...(text.trim() ? [{ text }] : [])] } : text.trim() && { role: "user", content: text };
  input.setAttribute("aria-label", T.fields.turns);
  return {
    element: make("div", { className: "talk" }, log, input, picture?.element, make("div", { className: "row" }, anew)), input,
    value: async () => {
      const text = input.value, turn = next(text, await picture?.value());
      if (turn?.parts) named.set(turn, picture.name);
      sent = turn ? [...turns, turn] : null;
      return sent ?? undefined;
    },
    again: () => sent,
    names: () => (sent ?? []).filter((turn) => named.has(turn)).map((turn) => named.get(turn)),
    // Once it is answered: whoever has begun anew meanwhile has another talk.
    heard: (asked, answer) => {
      if (asked !== sent) return;
      turns = [...asked, { role: "assistant", content: answer }];
      tell();
      if (input.value === textOf(asked.at(-1))) input.value = "";
      if (named.has(asked.at(-1))) picture.clear();
    },
    close: () => picture?.close(),
  };
}

// The message of what the controls hold. `isAgain`: of what was sent last, where it is no longer in its control.
export async function messageOf(model, controls, isAgain) {
  const message = { model: { name: model.name, version: model.version } };
  for (const control of controls) {
    const value = isAgain && control.again ? control.again() : await control.value();
    if (value === undefined) continue;
    if (control.name_ === "turns") message.messages = { turns: value };
    else if (control.name_ === "inputs") message.inputs = value.map((text) => ({ text }));
    else if (control.name_ === "images") message.inputs = value.map((image) => ({ image }));
    else message[control.name_] = value;
  }
  return message;
}
