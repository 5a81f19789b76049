// Renews the page of a run that goes on, and keeps what its reader sees, has sorted, filtered and opened.
"use strict";
(() => {
  const POLL = 2000;
  const LOST = 3; // polls without an answer
  const own = crypto.randomUUID();
  const bar = () => document.getElementById("live");
  const shown = () => Number(bar().dataset.page);
  let tag = "";
  let unanswered = 0;

  const named = (each) => (each.querySelector("b") || each).textContent.replace(/\d+/g, "#").trim();
  // The same part of the page before and after it is renewed has the same name.
  const name = (each) => {
    const words = [];
    for (let at = each; at && at.tagName !== "MAIN"; at = at.parentElement) {
      if (at.id && !at.id.startsWith("trials-")) words.push(at.id);
      else if (at.tagName === "DETAILS") words.push(named(at.querySelector("summary")));
      else if (at.matches(".scroll")) words.push(at.getAttribute("aria-label") || at.nextElementSibling?.textContent || "");
    }
    return words.join(" / ");
  };
  const all = (selector) => [...document.querySelectorAll(`main ${selector}`)];
  const byName = (selector) => new Map(all(selector).map((each) => [name(each), each]));
  const controls = (box) => {
    const filters = box.previousElementSibling;
    const found = filters && filters.matches(".filters") ? [...filters.querySelectorAll("input, select")] : [];
    return [...found, ...box.querySelectorAll(".sort")];
  };

  const kept = () => {
    const heads = all("section, main h2[id], main details").filter((each) => each.checkVisibility());
    const place = heads.filter((each) => each.getBoundingClientRect().top <= innerHeight / 2).pop();
    return {
      open: all("details").filter((each) => each.open).map(name),
      scrolled: all(".scroll").map((each) => [name(each), each.scrollLeft, each.scrollTop]),
      sorted: all(".scroll th[aria-sort]:not([aria-sort=none])").map((head) =>
        [name(head.closest(".scroll")), head.cellIndex, head.getAttribute("aria-sort")]),
      filtered: all(".scroll").map((box) =>
        [name(box), controls(box).filter((each) => !each.matches(".sort")).map((each) => each.value)]),
      focus: focused(),
      place: place && scrollY > 0 ? [place.tagName, name(place), place.getBoundingClientRect().top] : null,
    };
  };

  const focused = () => {
    const at = document.activeElement;
    const box = all(".scroll").find((each) => each === at || controls(each).includes(at));
    return box ? [name(box), controls(box).indexOf(at), at.selectionStart] : null;
  };

  const restore = (before) => {
    const details = byName("details");
    for (const each of before.open) if (details.has(each)) details.get(each).open = true;
    const boxes = byName(".scroll");
    for (const [each, column, order] of before.sorted) {
      const button = boxes.get(each)?.querySelector("thead tr")?.cells[column]?.querySelector(".sort");
      for (let press = 0; button && press < (order === "descending" ? 1 : 2); press += 1) button.click();
    }
    for (const [each, values] of before.filtered) {
      const fields = boxes.has(each) ? controls(boxes.get(each)) : [];
      values.forEach((value, at) => {
        if (!fields[at] || fields[at].value === value) return;
        fields[at].value = value;
        fields[at].dispatchEvent(new Event(fields[at].tagName === "SELECT" ? "change" : "input"));
      });
    }
    for (const [each, left, top] of before.scrolled) boxes.get(each)?.scrollTo({ left, top, behavior: "instant" });
    if (before.focus && boxes.has(before.focus[0])) {
      const [box, at, caret] = before.focus;
      const target = at < 0 ? boxes.get(box) : controls(boxes.get(box))[at];
      target?.focus({ preventScroll: true });
      if (typeof caret === "number") target?.setSelectionRange(caret, caret);
    }
    if (before.place) {
      const [tag, each, top] = before.place;
      const place = all("section, main h2[id], main details").find((other) => other.tagName === tag && name(other) === each);
      if (place) scrollBy({ top: place.getBoundingClientRect().top - top, behavior: "instant" });
    }
  };

  const renew = async () => {
    const answer = await fetch(`/?as=${own}`);
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = kept();
    for (const part of ["header", "main", "footer"]) {
      document.querySelector(`body > ${part}`).replaceWith(document.adoptNode(fresh.querySelector(`body > ${part}`)));
    }
    bar().replaceWith(document.adoptNode(fresh.getElementById("live")));
    document.title = fresh.title;
    tag = "";
    document.dispatchEvent(new Event("renewed"));
    restore(before);
  };

  const ask = async () => {
    const answer = await fetch(`/now?as=${own}&page=${shown()}`, { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag") || "";
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
    const [number, reads] = [Number(fresh.dataset.page), !getSelection().isCollapsed];
    const ended = fresh.dataset.state === "ended";
    if (number !== shown() && (ended || !reads)) {
      await renew();
    } else {
      if (number !== shown()) tag = ""; // its reader has text selected: it has to be told again
      fresh.dataset.page = bar().dataset.page;
      const [before, after] = [bar(), fresh].map((each) => each.querySelector("details"));
      if (before && after) after.open = before.open;
      bar().replaceWith(document.adoptNode(fresh));
    }
  };

  const lose = () => {
    const text = document.createElement("span");
    text.className = "trouble";
    const where = bar().dataset.run ? ` The run's folder is ${bar().dataset.run}.` : "";
    text.textContent = `tare does not answer any more: the run has ended, or was killed. This page stays as it was.${where}`;
    bar().dataset.state = "lost";
    bar().replaceChildren(text);
    tag = "";
  };

  const go = async () => {
    try {
      await ask();
      unanswered = 0;
    } catch {
      unanswered += 1;
      if (unanswered === LOST) lose();
    }
    if (bar().dataset.state === "ended") {
      fetch(`/now?as=${own}&page=${shown()}`).catch(() => {}); // that it may end now
      return;
    }
    setTimeout(go, POLL);
  };

  go();
})();
