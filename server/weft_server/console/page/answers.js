// Shows answers: texts with their tokens, labels, spans, vectors, scores.
import { attend, chatColumns, chip, heat, on, pictureColumns, soundColumns, tokenColumns } from "./attention.js";
import { make, percent, shown } from "./dom.js";
import { T } from "./texts.js";
import { treeOf } from "./tree.js";

const probability = (log) => Math.exp(log ?? 0);
// More would keep the browser busy for long: a text may have 131,072 tokens, and 256 inputs have 65,536 cosines. What
// stands below many labels would not be found.
const MOST_CHIPS = 2000, MOST_COSINES = 64, MOST_LABELS = 100;
const rest = (all, most) => all.length > most && hint(T.answer.rest(all.length - most));
const seconds = (text) => Math.round(1000 * parseFloat(text ?? "0"));
const part = (title, ...inside) => make("section", { className: "part" }, make("h3", {}, title), ...inside);
const hint = (text) => make("p", { className: "quiet" }, text);

// How long it took, and of what it was made.
export function factsOf(answer, tookMs) {
  const whole = answer.completion ?? answer, { usage = {}, timings = {}, model = {} } = whole;
  const facts = [`${model.name} ${T.answer.version} ${model.version}`, `${Math.round(tookMs)} ms`];
  for (const [stage, word] of Object.entries(T.answer.timings)) if (seconds(timings[stage])) facts.push(`${word} ${seconds(timings[stage])} ms`);
  if (usage.inputTokens) facts.push(`${usage.inputTokens} ${T.answer.tokensIn}${usage.cachedTokens ? `, ${usage.cachedTokens} ${T.answer.cached}` : ""}`);
  if (usage.outputTokens) facts.push(`${usage.outputTokens} ${T.answer.tokensOut}`);
  if (whole.finishReason) facts.push(T.answer.ends[whole.finishReason] ?? whole.finishReason);
  if (answer.language) facts.push(`${T.answer.spoken}: ${answer.language}`);
  return make("ul", { className: "facts" }, facts.map((fact) => make("li", {}, fact)));
}

// `file` is what was sent, a picture or a recording: its `blob`, and `urlOf`, which gives it a URL for as long as the answer is shown.
export function shownAnswer(verb, answer, file, message) {
  const columns = columnsOf(answer.alignment, file, message);
  return [...(SHOWN[verb.name] ?? writtenText)(answer, columns, message)];
}

function columnsOf(alignment, file, { messages }) {
  if (!alignment) return null;
  if (alignment.pictures) return chatColumns(messages.turns.flatMap(({ parts = [] }) => parts.filter(({ image }) => image).map(({ image }) => `data:image/png;base64,${image.data}`)), alignment);
  if (alignment.gridRows) return file ? pictureColumns(file.urlOf(file.blob), alignment) : null;
  if (alignment.numColumns) return file ? soundColumns(file.blob, file.urlOf(file.blob), alignment) : null;
  return tokenColumns(alignment.sourceTokens ?? []);
}

// Rows beside columns.
function attention(alignment, targets, columns, title = T.answer.wrote) {
  if (!alignment || !columns) return [];
  const { weights = [], sourceMass = [], targetTokens = [], gridRows, numColumns, questionTokens, pictures } = alignment, isSeen = gridRows || pictures;
  const one = gridRows ? T.answer.oneOfPicture : T.answer.one, several = gridRows ? T.answer.picture : T.answer.hint;
  const help = pictures ? T.answer.chat : questionTokens ? T.answer.asked : numColumns ? T.answer.sound : targetTokens.length === 1 ? one : several;
  // What is lit is said to who sees no colours. A sentence that came and went would move what is pointed at.
  const says = make("p", { className: "quiet", role: "status" }), tells = make("p", { className: "unseen", role: "status" }), shares = [], places = [];
  const tell = (place, looked, mass) => (heard) => {
    shares[place] = heard?.share && mass(heard.share);
    places[place] = heard && (heard.by ? T.answer.by(heard.by) : heard.at && looked(heard.at));
    for (const [line, sentences] of [[says, shares], [tells, places]]) line.textContent = sentences.filter(Boolean).join(" ");
  };
  attend(alignment, weights, sourceMass, targets, columns, tell(0, T.answer.at, gridRows ? T.answer.pictureMass : T.answer.mass));
  if (pictures) columns.shares = (share) => tell(1, T.answer.at, T.answer.pictures)(share === null ? null : { share: `${Math.round(100 * share)}%` });
  const rows = [make("h4", {}, title), make("div", { className: "chips" }, targets)];
  const read = [make("h4", {}, gridRows ? T.answer.saw : T.answer.read), columns.element];
  // A picture is high: its words stand above it, so that both are seen.
  return [part(T.answer.attention, hint(help), ...(isSeen ? [...rows, says, ...question(alignment, targets, tell(1, T.answer.questionAt, T.answer.questionMass)), ...read] : [...read, ...rows, says]), tells)];
}

const ofRows = ({ alignment }, columns, title) => attention(alignment, (alignment?.targetTokens ?? []).map((token) => chip(token)), columns, title);

// The words of the question, of an answer about a picture.
function question(alignment, targets, says) {
  const { questionTokens, questionWeights = [], questionMass = [] } = alignment;
  if (!questionTokens) return [];
  const columns = tokenColumns(questionTokens);
  attend(alignment, questionWeights, questionMass, targets, columns, says);
  return [make("h4", {}, T.answer.question), columns.element];
}

function* writtenText(answer, columns) {
  const { completion = {}, alignment, words } = answer;
  yield make("p", { className: "said", id: "said" }, completion.text ?? "");
  if (words && columns) {
    const targets = alignment.targetTokens.map((word, number) => chip(word, { onclick: () => columns.play(words[number]) }));
    yield* attention(alignment, targets, columns);
    if (completion.tokens) yield part(T.answer.probabilities, hint(T.answer.shade), ...tokenShades(completion, completion.tokens.map((token) => chip(token))));
  } else {
    const targets = (completion.tokens ?? alignment?.targetTokens ?? []).map((token) => chip(token));
    const shades = tokenShades(completion, targets);
    if (alignment && columns) yield* withAlternatives(attention(alignment, targets, columns), shades.slice(1));
    else if (targets.length) yield part(T.answer.probabilities, hint(T.answer.shade), ...shades);
  }
  if (completion.others) yield* outputs(completion);
}

function* withAlternatives([section], more) {
  if (more.length) section.append(hint(T.answer.shade), ...more);
  yield section;
}

// A line under each token: the darker, the surer. What else might have come is told on a click.
function tokenShades({ tokenLogProbs = [], topTokens = [] }, chips) {
  const box = make("div", { className: "alternatives", role: "status" });
  chips.forEach((each, number) => {
    if (tokenLogProbs[number] === undefined) return;
    each.classList.add("shaded");
    each.style.setProperty("--sure", probability(tokenLogProbs[number]));
    each.title = percent(probability(tokenLogProbs[number]));
    each.addEventListener("click", () => {
      for (const other of chips) other.setAttribute("aria-pressed", String(other === each));
      box.replaceChildren(make("h4", {}, `${T.answer.more} “`, each.textContent, "”"), bars((topTokens[number]?.tokens ?? []).map((token, index) =>
        [shown(token), probability(topTokens[number].logProbs[index])])));
    });
  });
  return [make("div", { className: "chips" }, chips), ...(topTokens.length ? [box] : [])];
}

function* outputs(completion) {
  const all = [completion, ...completion.others], tree = treeOf(all);
  yield part(T.answer.others, make("ol", { className: "outputs" }, all.map((each) => make("li", {}, make("span", {}, each.text ?? ""),
    each.score !== undefined && make("small", {}, `${T.answer.score} ${each.score.toFixed(3)}`)))));
  if (tree) yield part(T.tree.title, hint(T.tree.says), tree);
}

// [name, value] pairs. Of what is no probability, the longest bar is the largest.
function bars(pairs, isShare = true) {
  const most = isShare ? 1 : Math.max(...pairs.map(([, value]) => Math.abs(value)), 1e-9);
  return make("table", { className: "bars" }, make("tbody", {}, pairs.map(([name, value]) => {
    const bar = make("span", { className: "bar" });
    bar.style.setProperty("--share", Math.max(0, value) / most);
    return make("tr", {}, make("th", { scope: "row" }, make("span", {}, name)), make("td", {}, bar), make("td", { className: "number" }, isShare ? percent(value) : value.toFixed(4)));
  })));
}

function* labels(answer, columns) {
  const found = answer.labels ?? [];
  if (found.length) yield make("p", { className: "said", id: "said" }, found[0].label);
  yield bars(found.slice(0, MOST_LABELS).map(({ label, score = 0 }) => [label, score]), answer.scoring !== "LABEL_SCORING_IDENTITY");
  if (found.length > MOST_LABELS) yield rest(found, MOST_LABELS);
  yield* ofRows(answer, columns, T.answer.said);
}

// A text of which spans are marked. Places are counted in code points.
function marked(text, spans) {
  const letters = Array.from(text), parts = [];
  let at = 0;
  for (const { start = 0, end = 0, label } of spans) {
    if (start < at || end <= start) continue;
    parts.push(letters.slice(at, start).join(""), make("mark", {}, letters.slice(start, end).join(""), label && make("small", {}, label)));
    at = end;
  }
  return make("p", { className: "said", id: "said" }, ...parts, letters.slice(at).join(""));
}

function* tags(answer, columns, { text }) {
  yield marked(text, answer.spans ?? []);
  const tokens = answer.tokens ?? [];
  yield part(T.answer.tokens, rest(tokens, MOST_CHIPS), make("div", { className: "chips labelled" }, tokens.slice(0, MOST_CHIPS).map(({ token, label, score = 0 }) => {
    const made = make("span", { className: "chip shaded", title: percent(score) }, shown(token), make("small", {}, label));
    made.style.setProperty("--sure", score);
    return made;
  })));
  yield* ofRows(answer, columns, T.answer.each);
}

function* spans(answer, columns, { context }) {
  const found = (answer.answers ?? []).map((each) => ({ start: 0, end: 0, score: 0, ...each }));
  yield marked(context, found.slice(0, 1));
  yield bars(found.map(({ text, score }) => [text || T.answer.noSpan, score]));
  yield* ofRows(answer, columns, T.answer.each);
}

function* fillings(answer, columns, { text }) {
  const masks = answer.masks ?? [], letters = Array.from(text), parts = [];
  let at = 0;
  for (const { start = 0, end = 0, fillings: found = [] } of masks) {
    parts.push(letters.slice(at, start).join(""), make("mark", {}, (found[0]?.text ?? "").trim()));
    at = end;
  }
  yield make("p", { className: "said", id: "said" }, ...parts, letters.slice(at).join(""));
  for (const { fillings: found = [] } of masks) yield bars(found.map(({ text: word, score = 0 }) => [shown(word), score]));
  yield* ofRows(answer, columns, T.answer.each);
}

const dot = (one, other) => one.reduce((sum, each, number) => sum + each * other[number], 0);

function* cosines(answer, columns, { inputs }) {
  const byToken = (answer.embeddings ?? []).filter(({ values }) => !values);
  if (byToken.length) {
    for (const { tokenVectors = [], tokenIds = [] } of byToken) yield make("p", { className: "said" }, T.answer.byToken(tokenIds.length, tokenVectors.length / tokenIds.length));
    yield hint(T.answer.byTokenHelp);
    return;
  }
  const vectors = (answer.embeddings ?? []).map(({ values }) => values), names = inputs.slice(0, MOST_COSINES).map(({ text }, number) => text ?? `${T.fields.image} ${number + 1}`);
  const lengths = vectors.map((each) => Math.sqrt(dot(each, each)) || 1);
  yield make("p", { className: "quiet" }, `${vectors.length} × ${vectors[0]?.length ?? 0} ${T.answer.dimensions}`);
  const cell = (row, column) => {
    const cosine = dot(vectors[row], vectors[column]) / lengths[row] / lengths[column], made = make("td", { className: "cosine" }, cosine.toFixed(2));
    heat([made], [Math.max(0, cosine)]);
    return made;
  };
  if (vectors.length > 1) yield part(T.answer.cosines, hint(T.answer.cosinesHelp), rest(vectors, MOST_COSINES), make("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": T.answer.cosines },
    make("table", { className: "matrix" }, make("thead", {}, make("tr", {}, make("td"), names.map((_, number) => make("th", { scope: "col" }, String(number + 1))))),
      make("tbody", {}, names.map((name, row) => make("tr", {}, make("th", { scope: "row" }, `${row + 1}  ${name}`), names.map((_, column) => cell(row, column))))))));
  yield* ofRows(answer, columns, T.answer.said);
}

// Each token of a query, and which one of the document it met: that lights up.
function* matched({ total = 0, tokens, matches, targetTokens }) {
  const targets = targetTokens.slice(0, MOST_CHIPS).map((token) => make("span", { className: "chip" }, shown(token)));
  yield make("p", { className: "said", id: "said" }, `${T.answer.matched}: ${total.toFixed(3)}`);
  yield part(T.answer.matches, hint(T.answer.matchesHelp), rest(tokens, MOST_CHIPS), make("div", { className: "chips labelled" }, tokens.slice(0, MOST_CHIPS).map((token, number) => {
    const { place = 0, score = 0 } = matches[number], made = chip(token);
    made.append(make("small", {}, `${shown(targetTokens[place])} ${score.toFixed(2)}`));
    on(made, () => heat(targets, targets.map((_, other) => Number(other === place))), () => heat(targets, null));
    return made;
  })));
  yield part(T.fields.document, rest(targetTokens, MOST_CHIPS), make("div", { className: "chips source" }, targets));
}

function* scored(answer) {
  if (answer.matches) return yield* matched(answer);
  const { total = 0, tokens = [], tokenLogProbs = [], topTokens = [] } = answer;
  yield make("p", { className: "said", id: "said" }, `${T.answer.total}: ${(total > -0.0005 ? 0 : total).toFixed(3)}`);
  yield hint(`${T.answer.perplexity}: ${Math.exp(-total / (tokens.length || 1)).toFixed(3)}`);
  yield part(T.answer.probabilities, hint(T.answer.shade), rest(tokens, MOST_CHIPS), ...tokenShades({ tokenLogProbs, topTokens }, tokens.slice(0, MOST_CHIPS).map((token) => chip(token))));
}

function* pieces({ tokens = [], tokenIds = [], numTokens = 0 }) {
  yield make("p", { className: "said", id: "said" }, T.answer.numTokens(numTokens));
  if (tokens.length > MOST_CHIPS) yield rest(tokens, MOST_CHIPS);
  yield make("div", { className: "chips labelled" }, tokens.slice(0, MOST_CHIPS).map((token, number) => make("span", { className: "chip" }, shown(token), make("small", {}, String(tokenIds[number])))));
}

const SHOWN = { classify: labels, tag: tags, extract: spans, fill: fillings, embed: cosines, score: scored, tokenize: pieces };
