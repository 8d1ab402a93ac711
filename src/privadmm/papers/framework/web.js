"use strict";
// Hides claims that the filters leave out, and parts of the page that have no claim left. Without a script all is shown.
const form = document.querySelector(".filters");
const claims = [...document.querySelectorAll(".claim")];
const told = form.querySelector("output");

function chosen(name) {
  return new Set([...form.querySelectorAll(`input[name="${name}"]:checked`)].map((box) => box.value));
}

function apply() {
  const verdicts = chosen("verdict"), whose = chosen("whose");
  const paper = form.elements.paper.value, words = form.elements.words.value.trim().toLowerCase();
  let shown = 0;
  for (const claim of claims) {
    const { verdict, of } = claim.dataset;
    const home = claim.closest("section").id;
    const kept = verdicts.has(verdict) && whose.has(of) && (!paper || paper === home)
      && claim.textContent.toLowerCase().includes(words);
    claim.hidden = !kept;
    shown += kept;
  }
  const all = shown === claims.length;
  for (const part of document.querySelectorAll(".block, main > section[id]")) {
    part.hidden = !all && !part.querySelector(".claim:not([hidden])");
  }
  told.value = `${shown} of ${claims.length} claims shown`;
}

form.hidden = false;
form.addEventListener("input", apply);
form.addEventListener("submit", (event) => event.preventDefault());
apply();
