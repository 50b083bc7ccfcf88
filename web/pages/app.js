// Asks for the parts of a page that changed, follows a log, shows how an upload goes.
"use strict";
(() => {
  const main = document.getElementById("main");
  const silence = document.getElementById("silence");
  const every = Number(main.dataset.every || 0) * 1000;
  let heardAt = Date.now(), wait = every, log = document.querySelector("[data-log]");

  const page = (text) => new DOMParser().parseFromString(text, "text/html");

  function swap(old, fresh) {
    const active = document.activeElement;
    const href = old.contains(active) ? active.getAttribute("href") : null;
    const boxes = [...old.querySelectorAll(".wide")].map((box) => box.scrollLeft);
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".wide").forEach((box, at) => { box.scrollLeft = boxes[at] || 0; });
    fresh.querySelectorAll("details").forEach((each, at) => { each.open = open[at] || false; });
    if (href) [...fresh.querySelectorAll("a")].find((a) => a.getAttribute("href") === href)?.focus();
  }

  async function ask(url) {
    const reply = await fetch(url, { credentials: "same-origin", signal: AbortSignal.timeout(15000) });
    if (reply.status === 401) location.reload();
    if (!reply.ok) throw new Error(reply.status);
    heardAt = Date.now();
    return reply;
  }

  async function refresh() {
    const there = [...document.querySelectorAll("[data-part]")], url = new URL(location.href);
    url.searchParams.set("part", there.map((each) => each.dataset.part).join());
    url.searchParams.set("seen", there.map((each) => each.dataset.version).join());
    const reply = await ask(url);
    if (reply.status !== 200) return;
    for (const fresh of [...page(await reply.text()).body.children]) {
      const old = document.getElementById(fresh.id);
      if (old && !old.matches(":has(:is(input, select):focus)")) swap(old, document.adoptNode(fresh));
    }
  }

  async function follow() {
    const url = new URL(log.dataset.log, location.href);
    url.searchParams.set("from", log.dataset.from);
    const reply = await ask(url), text = await reply.text();
    if (!text) return;
    const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.append(text);
    log.dataset.from = reply.headers.get("X-From");
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  function say() {
    const seconds = Math.round((Date.now() - heardAt) / 1000);
    const words = seconds > 10 && !document.hidden ? `no answer for ${seconds} s` : "";
    if (silence.textContent !== words) silence.textContent = words;
  }

  async function round(work, pace) {
    if (!document.hidden) {
      try { await work(); wait = pace; } catch { wait = Math.min(wait * 2, 30000); }
      say();
    } else heardAt = Date.now();
    setTimeout(round, document.hidden ? 1000 : wait, work, pace);
  }

  if (every) {
    setTimeout(round, every, refresh, every);
    setInterval(say, 1000);
  }
  if (log) { log.scrollTop = log.scrollHeight; setTimeout(round, 1000, follow, 1000); }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    };
  }

  for (const form of document.querySelectorAll("[data-upload]")) form.onsubmit = (event) => {
    event.preventDefault();
    const bar = form.querySelector("progress"), send = new XMLHttpRequest();
    bar.hidden = false;
    send.upload.onprogress = (news) => { bar.value = news.loaded / (news.total || 1); };
    send.onload = () => {
      if (send.status < 400) location.assign(send.responseURL);
      else main.replaceWith(page(send.responseText).getElementById("main"));
    };
    send.onerror = () => { silence.textContent = "the upload was cut off"; };
    send.open("POST", form.action);
    send.send(new FormData(form));
  };
})();
