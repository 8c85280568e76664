// The live tail: takes server-sent events, and shows the newest messages as text.
"use strict";

(() => {
  const ROWS_MAX = 200;
  const tail = document.getElementById("tail");
  const rows = document.getElementById("rows");
  const pause = document.getElementById("pause");
  const state = document.getElementById("state");
  const counts = document.getElementById("counts");
  let source = null;
  let shown = 0;
  let skipped = 0;

  const cell = (row, name, ...content) => {
    const made = document.createElement("td");
    made.className = name;
    made.setAttribute("role", "cell");
    made.append(...content);
    row.append(made);
  };

  const payload = (data, href) => {
    const made = document.createElement("div");
    if (data.kind === "null" || data.kind === "empty") {
      made.className = "muted";
      made.textContent = data.kind;
      return made;
    }
    const text = document.createElement("pre");
    text.className = "payload";
    text.textContent = (data.line || data.text) + (data.is_cut ? "…" : "");
    made.append(text);
    if (data.is_cut || data.kind === "binary") {
      const size = document.createElement("span");
      size.className = "muted";
      size.textContent = data.kind + ", " + new Intl.NumberFormat("en").format(data.size_bytes) + " B ";
      made.append(size);
    }
    if (data.is_cut) {
      const whole = document.createElement("a");
      whole.href = href;
      whole.textContent = "whole";
      made.append(whole);
    }
    if (data.schema) {
      const schema = document.createElement("div");
      schema.className = "muted schema";
      schema.textContent = data.schema;
      made.append(schema);
    }
    return made;
  };

  const add = (message) => {
    const row = document.createElement("tr");
    row.setAttribute("role", "row");
    const link = document.createElement("a");
    link.href = message.href;
    link.textContent = String(message.offset);
    cell(row, "num", String(message.partition));
    cell(row, "num", link);
    const [date, time] = message.time.split("T");
    cell(row, "time", ...(time ? [date + "T", document.createElement("wbr"), time] : [date]));
    cell(row, "", payload(message.key, message.href));
    cell(row, "", payload(message.value, message.href));
    rows.prepend(row);
    while (rows.childElementCount > ROWS_MAX) {
      rows.lastElementChild.remove();
    }
  };

  const count = () => {
    const number = new Intl.NumberFormat("en");
    counts.textContent = number.format(shown) + " shown, " + number.format(skipped) + " skipped";
  };

  const say = (text) => {
    if (state.textContent !== text) {
      state.textContent = text;
    }
  };

  const start = () => {
    source = new EventSource(tail.dataset.events);
    source.onopen = () => say("running");
    source.onerror = () => {
      const ended = source && source.readyState === EventSource.CLOSED;
      say(ended ? "ended: the console refused, or too many streams are under way" : "interrupted, connecting again…");
      if (ended) {
        stop();
      }
    };
    source.onmessage = (event) => {
      const tick = JSON.parse(event.data);
      tick.messages.forEach(add);
      shown += tick.messages.length;
      skipped += tick.skipped;
      say(tick.note || "running");
      count();
      if (tick.ended) {
        stop();
      }
    };
    pause.textContent = "Pause";
  };

  const stop = () => {
    if (source) {
      source.close();
    }
    source = null;
    pause.textContent = "Resume";
  };

  pause.addEventListener("click", () => {
    if (source) {
      stop();
      say("paused");
    } else {
      say("connecting…");
      start();
    }
  });
  document.getElementById("clear").addEventListener("click", () => {
    rows.replaceChildren();
    shown = 0;
    skipped = 0;
    count();
  });
  window.addEventListener("pagehide", stop);
  document.getElementById("without-script").hidden = true;
  tail.hidden = false;
  count();
  start();
})();
