// The state of the models: what the server's metrics say of the last half minute, and of refusals since its start.
import { Refused, get, patience } from "./calls.js";
import { changesPart } from "./changes.js";
import { make } from "./dom.js";
import { allRefusals, ownRefusals } from "./refusals.js";
import { T } from "./texts.js";

const POLL_MS = 2000, SAMPLES = 16;
const LINE = /^weft_(\w+?)(?:\{(.*)\})? (\S+)/, LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const COLUMNS = ["model", "state", "precision", "size", "running", "queued", "slots", "cache", "tokens", "requests", "first", "whole"];

// [{ name, labels, value }] of a page of metrics. https://prometheus.io/docs/instrumenting/exposition_formats/
export function samplesOf(text) {
  return text.split("\n").map((line) => LINE.exec(line)).filter(Boolean).map(([, name, inside = "", value]) => ({
    name, value: Number(value), labels: Object.fromEntries([...inside.matchAll(LABEL)].map(([, key, said]) => [key, said.replace(/\\(.)/g, (_, each) => each === "n" ? "\n" : each)])),
  }));
}

const of = (samples, name, model) => samples.filter((each) => each.name === name && each.labels.model === model.name && Number(each.labels.version) === model.version);
const sum = (samples, name, model) => of(samples, name, model).reduce((total, each) => total + each.value, 0);

// The value below which a share of what was observed between two pages lies; null where nothing was.
export function quantile(share, before, now, name, model) {
  const counts = of(now, `${name}_bucket`, model).map(({ labels, value }) => [
    labels.le === "+Inf" ? Infinity : Number(labels.le), value - (of(before, `${name}_bucket`, model).find((each) => each.labels.le === labels.le)?.value ?? 0)]).sort((a, b) => a[0] - b[0]);
  const wanted = share * (counts.at(-1)?.[1] ?? 0), at = counts.findIndex(([, count]) => count >= wanted);
  if (!wanted) return null;
  const [below, fewer] = at ? counts[at - 1] : [0, 0], [above, more] = counts[at];
  return above === Infinity ? below : below + (above - below) * (wanted - fewer) / (more - fewer || 1);
}

const seconds = (value) => value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(value < 10 ? 2 : 0)} s`;
// Of JSON, where a number of 64 bits is a text.
const size = (bytes) => bytes ? `${(Number(bytes) / 1e6).toLocaleString("en", { maximumSignificantDigits: 2 })} MB` : "–";
const pair = (before, now, name, model) => {
  const times = [0.5, 0.95].map((share) => quantile(share, before, now, name, model));
  if (times[0] === null) return "–";
  const [half, most] = times.map(seconds), unit = most.slice(most.indexOf(" "));
  return `${half.endsWith(unit) ? half.slice(0, -unit.length) : half} / ${most}`;
};
const rate = (value) => value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");

// Cells of a model, by the oldest page of the last half minute and the newest.
function cells(model, [first, last]) {
  const gauge = (name) => of(last.samples, name, model)[0]?.value, elapsed = (last.at - first.at) / 1000;
  const grown = (name) => elapsed ? Math.max(0, sum(last.samples, name, model) - sum(first.samples, name, model)) / elapsed : 0;
  const slots = gauge("decode_slots_max"), kept = gauge("prefix_cache_max_bytes");
  return {
    model: make("a", { href: `#/${model.name}@${model.version}` }, `${model.name} ${model.version}`), precision: model.precision ?? "", size: size(model.sizeBytes),
    state: make("span", {}, make("span", { className: `dot ${model.state}` }), ` ${T.states[model.state] ?? model.state}`, model.error && make("small", { className: "why" }, model.error)),
    running: gauge("requests_running") ?? "–", queued: gauge("requests_queued") ?? "–", slots: slots ? `${gauge("decode_slots_used") ?? 0} / ${slots}` : "–",
    cache: slots ? [gauge("kv_cache_utilization") ?? 0, ...(kept ? [gauge("prefix_cache_bytes") / kept] : [])].map((share) => `${Math.round(100 * share)}%`).join(" / ") : "–", tokens: rate(grown("generated_tokens_total")), requests: rate(grown("requests_total")),
    first: pair(first.samples, last.samples, "time_to_first_token_seconds", model), whole: pair(first.samples, last.samples, "request_duration_seconds", model),
  };
}

function table(models, window) {
  const head = COLUMNS.map((name) => make("th", { scope: "col", title: T.state.help[name] ?? "" }, T.state.columns[name]));
  const rows = models.map((model) => { const said = cells(model, window); return make("tr", {}, COLUMNS.map((name, at) => make(at ? "td" : "th", at ? {} : { scope: "row" }, said[name]))); });
  return make("div", { className: "wide", role: "region", "aria-label": T.state.title, tabIndex: 0 }, make("table", { className: "state" }, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows)));
}

function refusals(samples) {
  const found = samples.filter((each) => each.name === "rejected_total" && each.value).sort((a, b) => b.value - a.value);
  const items = found.map(({ labels, value }) => make("li", {}, make("span", {}, make("code", {}, labels.reason), labels.model && ` ${labels.model}`), make("small", {}, value.toLocaleString("en"))));
  return make("section", { className: "part" }, make("h2", {}, T.state.refused), make("p", { className: "quiet" }, items.length ? T.state.refusedHelp : T.state.noneRefused), make("ul", { className: "outputs" }, items));
}

// The page. It asks until it is no longer shown. `models` gives those that ListModels told of last, `changes` says whether
// this port changes them.
export function statePage(models, changes, heard) {
  const pages = [], shown = make("div", {}, make("p", { className: "quiet" }, T.working));
  const page = make("div", { className: "model" }, make("h1", {}, T.state.title), make("p", { className: "quiet" }, T.state.says), shown, ownRefusals,
    changes && [allRefusals(heard), changesPart(models, heard)]);
  async function look() {
    try {
      pages.push({ at: performance.now(), samples: samplesOf(await (await get("console/metrics", patience())).text()) });
      if (pages.length > SAMPLES) pages.shift();
      const focus = shown.contains(document.activeElement);
      shown.replaceChildren(table(models(), [pages[0], pages.at(-1)]), refusals(pages.at(-1).samples));
      if (focus) shown.querySelector(".wide").focus();
    } catch (error) {
      heard(error);
      if (!(error instanceof Refused) || error.status) shown.replaceChildren(make("p", { className: "error", role: "alert" }, error.status === 403 ? T.state.role : error.message));
      // Only another token changes that.
      if ([401, 403].includes(error.status)) return;
    }
    setTimeout(() => page.isConnected && look(), document.hidden ? 5 * POLL_MS : POLL_MS);
  }
  look();
  return page;
}
