// What a browser asks for after the page: the simulated users ask for the same, in the same order (load/visitor.py).
"use strict";

const at = (id) => document.getElementById(id);
const asked = async (path, values) => {
  const answer = await fetch(`${path}?${new URLSearchParams(values)}`);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};
const lines = (element, texts, tag) => {
  element.replaceChildren(...texts.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
};

at("word").addEventListener("input", async () => {
  const word = at("word").value;
  if (word.length === 2 || word.length === 4) lines(at("words"), await asked("/suggest", { q: word }), "option");
});

at("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const found = await asked("/search", { q: at("word").value });
  const entries = await Promise.all(found.slice(0, 2).map((word) => asked("/entry", { word })));
  lines(at("entries"), entries.flatMap((each) => [each.word, ...each.senses.map((sense) => sense.gloss)]), "p");
  await asked("/user", {});
  lines(at("popular"), (await asked("/popular", {})).map((each) => each.word), "p");
});
