// Drives a page of Chromium for a test: `page.mjs CHROMIUM FLAG ...`. Each line of JSON on stdin is a step, and has a line of JSON as its answer.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const browser = await puppeteer.launch({ executablePath: process.argv[2], args: ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", ...process.argv.slice(3)] });
let page = null, errors = [], origins = new Set(), answers = new Map();

const steps = {
  // A page of its own, without what others have stored.
  open: async ({ url, width = 1280, height = 900, scheme = "light", motion = "no-preference" }) => {
    await page?.browserContext().close();
    page = await (await browser.createBrowserContext()).newPage();
    [errors, origins, answers] = [[], new Set(), new Map()];
    page.on("request", (request) => { if (/^https?:|^wss?:/.test(request.url())) origins.add(new URL(request.url()).origin); });
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (line) => { if (line.text().includes("Content Security Policy")) errors.push(line.text()); });
    await page.setViewport({ width, height });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: motion }]);
    await page.goto(url);
  },
  // A tab more in the same browser. It is driven from now on, and the other one stays open.
  beside: async ({ url }) => {
    page = await page.browserContext().newPage();
    await page.goto(url);
  },
  // The tab that was opened first, again.
  first: async () => {
    page = (await page.browserContext().pages())[0];
    await page.bringToFront();
  },
  // From now on, a path is answered with this JSON instead of by the server. Without one, by the server again.
  answer: async ({ path, json, status = 200 }) => {
    if (!answers.size) {
      await page.setRequestInterception(true);
      page.on("request", (request) => {
        const said = answers.get(new URL(request.url()).pathname);
        said?.body ? request.respond({ contentType: "application/json", ...said }) : request.continue();
      });
    }
    answers.set(path, { status, body: JSON.stringify(json) });
  },
  reload: async () => { await page.reload(); },
  // Until an expression of the page is true.
  until: async ({ is }) => { await page.waitForFunction(is, { polling: 50, timeout: 15_000 }); },
  // What an expression of the page is.
  see: async ({ what }) => await page.evaluate(what),
  click: async ({ on }) => await page.locator(on).click(),
  hover: async ({ on }) => await page.locator(on).hover(),
  focus: async ({ on }) => await page.focus(on),
  // It may do this, and nothing else that a browser asks for.
  allow: async ({ names }) => await page.browserContext().overridePermissions(new URL(page.url()).origin, names),
  // What the browser has in its menu, such as Paste.
  command: async ({ name }) => await page.keyboard.press("F13", { commands: [name] }),
  // Of several, such as Control+Enter, the first ones are held.
  press: async ({ key }) => {
    const keys = key.split("+"), last = keys.pop();
    for (const each of keys) await page.keyboard.down(each);
    await page.keyboard.press(last);
    for (const each of keys) await page.keyboard.up(each);
  },
  write: async ({ on, text }) => await page.locator(on).fill(text),
  upload: async ({ on, files }) => await (await page.waitForSelector(on)).uploadFile(...files),
  point: async ({ on, x, y }) => {
    const box = await (await page.waitForSelector(on)).boundingBox();
    await page.mouse.move(box.x + x * box.width, box.y + y * box.height);
  },
  drag: async ({ on, points }) => {
    const box = await (await page.waitForSelector(on)).boundingBox(), at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
    await page.mouse.move(...at(points[0]));
    await page.mouse.down();
    for (const each of points.slice(1)) await page.mouse.move(...at(each), { steps: 4 });
    await page.mouse.up();
  },
  shot: async ({ path, width, height, whole = false }) => {
    if (width) await page.setViewport({ width, height });
    await page.screenshot({ path, fullPage: whole });
  },
  // Each rule of axe that does not hold, and where.
  axe: async () => {
    const source = (await import("node:fs")).readFileSync(axe, "utf8");
    await page.evaluate(source);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    return violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html.slice(0, 160))]);
  },
  // What went wrong in it, and whom it asked.
  judge: async () => ({ errors, origins: [...origins] }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { step, ...about } = JSON.parse(line);
  let answer;
  try { answer = { seen: (await steps[step](about)) ?? null }; } catch (error) { answer = { error: String(error) }; }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
