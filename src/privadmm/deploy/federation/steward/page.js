// Decides about a proposal after a question, and says when something has changed. All else is in the page itself.
"use strict";

const LOOK = 10000; // milliseconds between looks
const root = document.body.dataset.root;
const decide = document.getElementById("decide");

async function send(approve, why, tell) {
  const failed = document.getElementById("failed");
  failed.hidden = true;
  const asked = { place: decide.dataset.place, digest: decide.dataset.digest, approve, why, tell };
  try {
    const answer = await fetch(`${root}decide`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked),
      credentials: "omit",
    });
    if (answer.ok) {
      location.reload();
      return;
    }
    const said = await answer.text();
    let message = said;
    try {
      message = JSON.parse(said).message;
    } catch {
      // a sentence, and no JSON
    }
    failed.textContent = `Nothing was decided: ${message}`;
  } catch {
    failed.textContent = "Nothing was decided: the page's server does not answer. Is `privadmm steward` still there?";
  }
  failed.hidden = false;
}

if (decide) {
  decide.hidden = false;
  for (const button of document.querySelectorAll("[data-opens]")) {
    button.addEventListener("click", () => document.getElementById(button.dataset.opens).showModal());
  }
  for (const button of document.querySelectorAll("[data-closes]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  for (const button of document.querySelectorAll("[data-says]")) {
    button.addEventListener("click", () => {
      const dialog = button.closest("dialog");
      const why = dialog.querySelector("[name=why]");
      const tell = dialog.querySelector("[name=tell]");
      if (!why.reportValidity()) {
        return;
      }
      dialog.close();
      send(button.dataset.says === "yes", why.value, tell ? tell.checked : false);
    });
  }
}

document.getElementById("anew").addEventListener("click", () => location.reload());
setInterval(async () => {
  if (document.hidden) {
    return;
  }
  try {
    const answer = await fetch(`${root}mark`, { credentials: "omit" });
    const { mark } = await answer.json();
    document.getElementById("news").hidden = mark === document.body.dataset.mark;
  } catch {
    // it may be back at the next look
  }
}, LOOK);
