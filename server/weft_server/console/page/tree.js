// Several answers as a tree: those that begin alike share a branch. A list inside a list, for a screen reader too.
import { on } from "./attention.js";
import { make, percent, shown } from "./dom.js";
import { T } from "./texts.js";

const total = (logProbs) => logProbs.reduce((sum, each) => sum + each, 0);

// `answers` are of a Completion, best first. Whoever did not ask for their tokens has no tree.
export function treeOf(answers) {
  const written = answers.map((each, number) => ({ ...each, number: number + 1 })).filter(({ tokens, tokenLogProbs }) => tokens?.length && tokenLogProbs);
  return written.length > 1 ? make("div", { className: "wide tree", role: "region", "aria-label": T.tree.title, tabIndex: 0 }, branches(written, 0)) : null;
}

function branches(answers, at) {
  return make("ul", {}, [...Map.groupBy(answers, ({ tokenIds }) => tokenIds[at]).values()].map((alike) => branch(alike, at)));
}

// From one token to where they differ, or the first of them ends.
function branch(alike, at) {
  const [{ tokens, tokenIds, tokenLogProbs }] = alike;
  let end = at + 1;
  while (alike.every((each) => end < each.tokenIds.length && each.tokenIds[end] === tokenIds[end])) end++;
  const longer = alike.filter((each) => end < each.tokenIds.length);
  const words = tokens.slice(at, end).map((token, number) => {
    const made = make("span", { className: "chip shaded", title: percent(Math.exp(tokenLogProbs[at + number])) }, shown(token));
    made.style.setProperty("--sure", Math.exp(tokenLogProbs[at + number]));
    return made;
  });
  const share = make("small", { title: T.tree.share }, percent(Math.exp(total(tokenLogProbs.slice(at, end)))));
  return make("li", {}, make("div", { className: "chips run" }, words, share, alike.filter((each) => end === each.tokenIds.length).map(leaf)), longer.length > 0 && branches(longer, end));
}

// The end of an answer. Who points at it, or goes to it, sees its way.
function leaf({ number, score, tokenLogProbs }) {
  const says = [T.tree.answer(number), T.tree.whole(percent(Math.exp(total(tokenLogProbs)))), score !== undefined && `${T.answer.score} ${score.toFixed(3)}`];
  const made = make("button", { type: "button", className: "leaf" }, says.filter(Boolean).join(" · "));
  const light = (is) => { for (let at = made.closest("li"); at; at = at.parentElement.closest("li")) at.firstChild.classList.toggle("lit", is); };
  on(made, () => light(true), () => light(false));
  return made;
}
