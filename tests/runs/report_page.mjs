// Looks at reports, as test_report_browser.py asks: node report_page.mjs OUT NAME=FILE ...
import { pathToFileURL } from "node:url";
import { end, opened, pictures, seen, tabbed } from "../browser.mjs";

const [out, ...named] = process.argv.slice(2);
seen.pages = {};
for (const [name, file] of named.map((one) => one.split("="))) {
  const page = await opened(pathToFileURL(file).href);
  await pictures(page, out, name);
  seen.pages[name] = { stops: await tabbed(page) };
  const folded = await page.$$("summary");
  for (const one of folded) await one.click();
  if (folded.length) await pictures(page, out, `${name}-unfolded`);
  await page.close();
}
await end();
