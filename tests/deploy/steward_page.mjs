// Drives the steward's page in headless Chromium, as test_steward_browser.py asks: node steward_page.mjs URL OUT
// Prints one line of JSON: what it saw. Chromium runs with its own rules of origins: no flag takes them away.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, out] = process.argv.slice(2);
const from = createRequire(`${process.env.PRIVADMM_BROWSER}/package.json`);
const load = async (name) => (await import(pathToFileURL(from.resolve(name)))).default;
const [chromium, puppeteer] = [await load("@sparticuz/chromium"), await load("puppeteer-core")];

const args = ["--no-sandbox", "--disable-gpu", "--no-zygote", "--disable-dev-shm-usage"];
const executablePath = await chromium.executablePath();
const browser = await puppeteer.launch({ args, executablePath, headless: "shell" });
const seen = { console: [], widths: {} };
const page = await browser.newPage();
page.on("console", (line) => seen.console.push(line.text()));
page.on("pageerror", (error) => seen.console.push(error.message));
page.on("response", (answer) => answer.status() >= 400 && seen.console.push(`${answer.status()} ${answer.url()}`));
const text = (selector) => page.$eval(selector, (element) => element.textContent.trim());
const isOpen = (selector) => page.$eval(selector, (element) => element.open);
const went = (doing) => Promise.all([page.waitForNavigation(), doing()]);

async function shots(name) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    for (const width of [1100, 320]) {
      await page.setViewport({ width, height: 900 });
      await page.screenshot({ path: `${out}/${name}-${scheme}-${width}.png`, fullPage: true });
      seen.widths[`${name} ${width}`] = await page.evaluate(() => document.documentElement.scrollWidth);
    }
  }
  await page.setViewport({ width: 1100, height: 900 });
  await page.pdf({ path: `${out}/${name}.pdf` });
}

await page.goto(url);
seen.first = await text("h1");
await shots("overview");
await went(() => page.click("a.button"));
await shots("proposal");

// With the keyboard alone, from the top of the page.
seen.stops = [];
for (let step = 0; step < 20 && seen.stops.at(-1) !== "Approve"; step += 1) {
  await page.keyboard.press("Tab");
  seen.stops.push(await page.evaluate(() => document.activeElement.textContent.trim()));
}
await page.keyboard.press("Enter");
seen.asked = await isOpen("#approve");
await page.screenshot({ path: `${out}/question.png` });
await page.keyboard.press("Escape");
seen.closed = !(await isOpen("#approve"));
seen.untouched = await text(".state");
await page.keyboard.press("Enter");
await page.keyboard.type("the board agreed");
await page.keyboard.press("Tab");
await went(() => page.keyboard.press("Enter"));
seen.approved = await text(".state");

// A refusal without a reason is not sent.
await page.click("[data-opens=refuse]");
await page.click("[data-says=no]");
seen.unreasoned = await isOpen("#refuse");
await page.type("#refuse [name=why]", "<b>mind</b> changed");
await page.click("#refuse [name=tell]");
await went(() => page.click("[data-says=no]"));
seen.refused = await text(".state");
seen.why = await page.$eval("main", (element) => element.innerText.includes("<b>mind</b> changed"));

// A page of another origin knows the address, and can neither frame it nor decide.
const digest = await page.$eval("#decide", (element) => element.dataset.digest);
const stranger = await browser.newPage();
await stranger.goto("data:text/html,<title>stranger</title>");
seen.stranger = await stranger.evaluate(
  async (address, digest) => {
    const asked = JSON.stringify({ place: "0", digest, approve: true, why: "", tell: false });
    const tries = [{ headers: { "Content-Type": "application/json" } }, { mode: "no-cors" }];
    const said = [];
    for (const how of tries) {
      said.push(await fetch(`${address}decide`, { method: "POST", body: asked, ...how }).then((one) => one.type, () => "failed"));
    }
    return said;
  },
  url,
  digest,
);
await stranger.close();

const reader = await browser.newPage();
await reader.setJavaScriptEnabled(false);
await reader.goto(url);
seen.unscripted = await reader.$eval("h1", (element) => element.textContent);
await browser.close();
console.log(JSON.stringify(seen));
