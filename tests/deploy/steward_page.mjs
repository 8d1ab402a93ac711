// Drives the steward's page, as test_steward_browser.py asks: node steward_page.mjs URL OUT
import { NARROW, WIDE, browser, end, opened, pictures, seen, tabbed } from "../browser.mjs";

const [url, out] = process.argv.slice(2);
const page = await opened(url);
const text = (selector) => page.$eval(selector, (element) => element.textContent.trim());
const isOpen = (selector) => page.$eval(selector, (element) => element.open);
const went = (doing) => Promise.all([page.waitForNavigation(), doing()]);

seen.first = await text("h1");
await pictures(page, out, "steward-overview");
await went(() => page.click("a.button"));
await pictures(page, out, "steward-proposal");
await page.click("summary");
await page.screenshot({ path: `${out}/steward-proposal-text.png`, fullPage: true });
await went(() => page.reload());

// With the keyboard alone, from the top of the page.
seen.stops = await tabbed(page, "Approve");
await page.screenshot({ path: `${out}/steward-focus.png` });
await page.keyboard.press("Enter");
seen.asked = await isOpen("#approve");
await page.screenshot({ path: `${out}/steward-question.png` });
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
await page.setViewport(NARROW);
await page.screenshot({ path: `${out}/steward-question-narrow.png` });
await page.setViewport(WIDE);
await page.click("#refuse [name=tell]");
await went(() => page.click("[data-says=no]"));
seen.refused = await text(".state");
seen.why = await page.$eval("main", (element) => element.innerText.includes("<b>mind</b> changed"));
const digest = await page.$eval("#decide", (element) => element.dataset.digest);
await pictures(page, out, "steward-refused");

// The other proposal is approved, and both decisions are on the overview.
await went(() => page.click("main a"));
await went(() => page.click("a.button"));
await page.click("[data-opens=approve]");
await went(() => page.click("[data-says=yes]"));
await went(() => page.click("main a"));
seen.decided = await page.$$eval("td[data-name=State]", (cells) => cells.slice(0, 2).map((cell) => cell.textContent));
await pictures(page, out, "steward-decided");

// A page of another origin knows the address, and can neither frame it nor decide.
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
await end();
