// One model and one thing to ask it: its form, its answer as it comes, and the same call as code.
import { factsOf, shownAnswer } from "./answers.js";
import { Refused, stream, unary } from "./calls.js";
import { codeOf, codePart } from "./code.js";
import { make, tabs } from "./dom.js";
import { fieldControl, messageOf, ofOneKind } from "./fields.js";
import { settingsOf } from "./settings.js";
import { T } from "./texts.js";
import { streamOf, verbsOf } from "./verbs.js";

export function playground(model, verbName, facts, choose, refused) {
  const verbs = verbsOf(model), verb = verbs.find((each) => each.name === verbName) ?? verbs[0];
  const why = make("p", { className: "error" }), head = [make("h1", {}, model.name), make("p", { className: "quiet" }, model.description ?? ""), why];
  const tell = ({ error = "" }) => { [why.hidden, why.textContent] = [!error, error]; };
  tell(model);
  const isWhole = Boolean(model.limits);
  if (!verb) return { element: make("div", { className: "model" }, head), tell, isWhole };
  const controls = verb.fields(model).filter(Boolean).map(([name, kind, more]) => fieldControl(name, kind, more, exampleOf(verb, model, name, more)));
  ofOneKind(controls);
  const settings = settingsOf(verb, model, facts.rows, () => going.again());
  const answer = make("section", { className: "answer", id: "answer", "aria-label": T.answer.title, tabIndex: -1 }, make("h2", {}, T.answer.title), make("p", { className: "quiet" }, T.answer.empty));
  const run = make("button", { type: "submit", className: "main" }, verb.name === "chat" ? T.send : T.run);
  const stop = make("button", { type: "button", disabled: true }, T.stop), says = make("span", { role: "status", className: "quiet" });
  const form = make("form", { className: "ask", noValidate: true, "aria-label": T.verbs[verb.name], onsubmit: (event) => { event.preventDefault(); going.run(); } },
    controls.map((each) => each.element), settings.element, make("div", { className: "row" }, run, stop, says));
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) going.run(); });
  const going = runner({ model, verb, controls, settings, answer, run, stop, says, facts, refused });
  stop.addEventListener("click", going.stop);
  const element = make("div", { className: "model" }, head,
    tabs(model.name, verbs.map((each) => [each.name, T.verbs[each.name]]), verb.name, choose), make("div", { className: "two" }, form, answer));
  return { element, tell, isWhole, close: going.close };
}

function exampleOf(verb, model, name, { begin = "" } = {}) {
  const example = T.examples[verb.name]?.[name];
  return example === undefined ? "" : begin + example.replace("{mask}", model.maskToken ?? "");
}

function runner(at) {
  let abort = null;
  const { verb, controls, settings, answer, run, stop, says, model } = at;
  const urls = [], urlOf = (blob) => urls[urls.push(URL.createObjectURL(blob)) - 1];
  const free = () => { for (const each of urls.splice(0)) URL.revokeObjectURL(each); };
  const going = { stop: () => abort?.abort() };
  let hasAnswer = false;
  // What was asked last, by settings that were changed since.
  going.again = () => hasAnswer && controls.every((each) => !each.again || each.again()) && going.run(true);
  // It is no longer shown.
  going.close = () => {
    going.stop();
    free();
    for (const each of controls) each.close?.();
  };
  going.run = async (isAgain = false) => {
    abort?.abort();
    const mine = abort = new AbortController(), began = performance.now();
    let message = {};
    const isHere = () => [run, stop].includes(document.activeElement), wasHere = isHere();
    for (const each of [...controls, ...settings.controls]) each.blame(false);
    [run.disabled, stop.disabled, says.textContent] = [true, false, T.working];
    answer.setAttribute("aria-busy", "true");
    try {
      message = await messageOf(model, controls, isAgain);
      // A form that is filled anew while the answer comes changes nothing of it.
      const files = controls.flatMap((each) => each.names?.() ?? (each.blob ? [each.name] : [])), { blob, seconds } = controls.find((each) => each.blob) ?? {};
      settings.fill(message, seconds);
      free();
      const said = await asked(verb, message, mine.signal, answer);
      fill(answer, factsOf(said, performance.now() - began), ...shownAnswer(verb, said, blob && { blob, urlOf }, message),
        codePart(codeOf(verb, message, files, at.facts), files));
      controls.find((each) => each.heard)?.heard(message.messages.turns, said.completion?.text ?? "");
      [says.textContent, hasAnswer] = [T.done, true];
    } catch (error) {
      if (abort !== mine) return;
      says.textContent = mine.signal.aborted ? T.stopped : "";
      if (!mine.signal.aborted) answer.append(refusal(error, message, at));
    } finally {
      if (abort === mine) {
        // A button that is disabled loses the focus: whoever has no mouse would begin at the page's head.
        const isLost = document.activeElement === document.body ? wasHere : isHere();
        [run.disabled, stop.disabled] = [false, true];
        if (isLost) run.focus({ preventScroll: true });
        answer.removeAttribute("aria-busy");
      }
    }
  };
  return going;
}

// Its title stays.
const fill = (answer, ...parts) => answer.replaceChildren(answer.firstChild, ...parts);

// The whole answer. What writes is shown while it comes.
async function asked(verb, message, signal, answer) {
  if (!verb.streams) { fill(answer); return await unary(verb.method, message, signal); }
  const text = make("p", { className: "said coming", "aria-live": "polite" });
  fill(answer, text);
  let whole = null;
  try {
    for await (const { delta, final } of stream(streamOf(verb.method), { request: message }, signal)) {
      if (delta) text.append(delta.text);
      whole = final ?? whole;
    }
  } finally {
    // What came stays, and nothing more comes.
    text.classList.remove("coming");
  }
  return whole ?? {};
}

// Of inputs, texts and pictures have a control each.
function controlOf(field, message, controls) {
  const [, name, number] = /^(\w*)(?:\[(\d+)\])?/.exec(field);
  const wanted = name === "messages" ? "turns" : name === "inputs" && message.inputs?.[number]?.image ? "images" : name;
  return controls.find((each) => snake(each.name_) === wanted) ?? (name === "inputs" ? controls.find((each) => each.name_ === "images") : undefined);
}

function refusal(error, message, { controls, settings, refused }) {
  refused(error);
  const is = error instanceof Refused, field = is ? error.field : "";
  const control = controlOf(field, message, controls) ?? settings.find(field);
  control?.blame(true);
  if (control?.path) settings.open();
  control?.input?.focus();
  return make("div", { className: "error", role: "alert" }, make("b", {}, T.errors.none), " ", error.message || String(error),
    is && (error.reason || field) && make("small", {}, [error.reason && `${T.errors.reason}: ${error.reason}`, field && `${T.errors.field}: ${field}`].filter(Boolean).join(" · ")));
}

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
