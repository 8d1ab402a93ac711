// Headless Chromium for tests of pages, from the folder PRIVADMM_BROWSER. It runs with its own rules of origins: no flag
// takes them away. `seen` is printed as one line of JSON at the end; what is in `seen.wrong` should not have happened.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const from = createRequire(`${process.env.PRIVADMM_BROWSER}/package.json`);
const load = async (name) => (await import(pathToFileURL(from.resolve(name)))).default;
const [chromium, puppeteer] = [await load("@sparticuz/chromium"), await load("puppeteer-core")];
const axe = readFileSync(from.resolve("axe-core/axe.min.js"), "utf-8");

const args = ["--no-sandbox", "--disable-gpu", "--no-zygote", "--disable-dev-shm-usage"];
const executablePath = await chromium.executablePath();
export const browser = await puppeteer.launch({ args, executablePath, headless: "shell" });
export const seen = { wrong: [] };

export const WIDE = { width: 1280, height: 900 };
export const NARROW = { width: 390, height: 844 };
const SMALLEST = { width: 320, height: 640 }; // where a page still has to be read without scrolling sideways
const PAPER = { width: 688, height: 1017 }; // what A4 has within margins of 1.6 cm, at 96 pixels an inch

// A page that may load what is below an address; whatever else it asks for, says or fails in is noted.
export async function opened(address) {
  const page = await browser.newPage();
  page.on("console", (line) => seen.wrong.push(`console: ${line.text()}`));
  page.on("pageerror", (error) => seen.wrong.push(`error: ${error.message}`));
  page.on("requestfailed", (one) => seen.wrong.push(`failed: ${one.url()} ${one.failure()?.errorText}`));
  page.on("request", (one) => one.url().startsWith(address) || seen.wrong.push(`elsewhere: ${one.url()}`));
  page.on("response", (one) => one.status() >= 400 && seen.wrong.push(`${one.status()} ${one.url()}`));
  await page.setViewport(WIDE);
  await page.goto(address);
  return page;
}

// Pictures of the page as it is: wide, narrow, dark and printed; no width may need scrolling, and axe finds no fault.
export async function pictures(page, out, name) {
  const devtools = await page.createCDPSession();
  const take = async (kind, viewport, { scheme = "light", media = "screen" } = {}) => {
    // In one message: puppeteer's own calls for the two forget each other.
    await devtools.send("Emulation.setEmulatedMedia", { media, features: [{ name: "prefers-color-scheme", value: scheme }] });
    await page.setViewport(viewport);
    await page.screenshot({ path: `${out}/${name}-${kind}.png`, fullPage: true });
    await fits(page, `${name}-${kind}`, viewport.width);
  };
  await take("narrow", NARROW);
  await faults(page, `${name}-narrow`);
  await take("dark-narrow", NARROW, { scheme: "dark" });
  await take("print", PAPER, { scheme: "dark", media: "print" }); // whoever reads in the dark prints on white paper
  await faults(page, `${name}-print`);
  await page.pdf({ path: `${out}/${name}-print.pdf`, format: "A4" });
  await take("dark", WIDE, { scheme: "dark" });
  await faults(page, `${name}-dark`);
  await page.setViewport(SMALLEST);
  await fits(page, `${name} at ${SMALLEST.width}`, SMALLEST.width);
  await take("wide", WIDE);
  await faults(page, `${name}-wide`);
  await devtools.detach();
}

async function fits(page, name, width) {
  const needed = await page.evaluate(() => document.documentElement.scrollWidth);
  if (needed > width) seen.wrong.push(`${name}: ${needed} pixels wide`);
}

async function faults(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  for (const one of violations) seen.wrong.push(`${name}: ${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`);
}

// Presses Tab until the focus is on an element with this text, or has passed them all; the texts on the way. It has to
// be seen everywhere.
export async function tabbed(page, text = null) {
  const stops = [];
  while (text === null || stops.at(-1) !== text) {
    await page.keyboard.press("Tab");
    const [label, outline, last] = await page.evaluate(() => {
      const at = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(at);
      return [at.textContent.trim(), outlineStyle === "none" ? 0 : parseFloat(outlineWidth), at === document.body];
    });
    if (last) break;
    stops.push(label);
    if (outline < 2) seen.wrong.push(`the focus on "${label.slice(0, 40)}" cannot be seen`);
  }
  return stops;
}

export async function end() {
  await browser.close();
  console.log(JSON.stringify(seen));
}
