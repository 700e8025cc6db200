// Opens a page in Chromium, and writes as JSON what it shows and whom it asked: `browser.mjs CHROMIUM URL caption|calls`.
import puppeteer from "puppeteer-core";

const [chromium, url, what] = process.argv.slice(2);
const looks = {
  // The text of a paragraph, once nothing more comes.
  caption: async (page) => {
    await page.waitForFunction(() => {
      const text = document.querySelector("p").textContent, same = text && text === globalThis.before;
      globalThis.before = text;
      return same;
    }, { polling: 500 });
    return page.$eval("p", (p) => p.textContent);
  },
  // What each call says that is opened and sent, by its path.
  calls: async (page) => {
    await page.waitForSelector(".call");
    return page.evaluate(async () => {
      const said = {};
      for (const call of document.querySelectorAll(".call")) {
        const opened = new Promise((done) => call.addEventListener("toggle", done, { once: true }));
        call.open = true;
        await opened;
        call.querySelector(".send").click();
        while (!call.querySelector(".send").disabled || !call.querySelector("pre")) await 0;
        while (call.querySelector(".send").disabled) await new Promise((done) => setTimeout(done, 20));
        const status = parseInt([...call.querySelectorAll(".row span")].pop().textContent);
        said[call.querySelector("summary code").textContent] = [status, call.querySelector("pre").textContent];
      }
      return said;
    });
  },
};

const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage(), requested = new Set(), errors = [];
  page.on("request", (request) => requested.add(new URL(request.url()).origin));
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (line) => line.text().includes("Content Security Policy") && errors.push(line.text()));
  await page.goto(url);
  const seen = await looks[what](page);
  console.log(JSON.stringify({ seen, errors, requested: [...requested].filter((each) => each !== "null") }));
} finally {
  await browser.close();
}
