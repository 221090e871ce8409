// Small comforts. Every page works without them, and nothing is fetched.
"use strict";

const UNITS = [[86400000, "d", 3600000, "h"], [3600000, "h", 60000, "min"], [60000, "min", 60000, ""]];

function span(ms) {
  for (const [unit, name, smaller, small] of UNITS) {
    if (ms < unit) continue;
    const rest = Math.floor((ms % unit) / smaller);
    return Math.floor(ms / unit) + " " + name + (rest ? " " + rest + " " + small : "");
  }
  return "less than a minute";
}

function tick() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-due]")) {
    const left = Date.parse(time.dateTime) - now;
    time.textContent = left > 0 ? "due in " + span(left) : "overdue for " + span(-left);
    time.classList.toggle("over", left <= 0);
    time.classList.toggle("soon", left > 0 && left <= 3600000);
  }
}

// One click, one answer.
document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button")) setTimeout(() => { button.disabled = true; });
});
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button")) button.disabled = false;
});

// The bar for several items shows how many are chosen.
function counted() {
  const bar = document.querySelector(".chosen");
  if (!bar) return;
  const number = document.querySelectorAll('input[name="item"]:checked').length;
  bar.hidden = number === 0;
  bar.querySelector("output").textContent = String(number);
}
document.addEventListener("change", counted);

// j and k walk through the list, x chooses, / searches; on an item the first letter of an answer opens it, once more the next; u goes back.
function walk(step) {
  const rows = [...document.querySelectorAll(".rows a")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  if (next) next.focus();
}

function open(letter) {
  const found = [...document.querySelectorAll("details[data-key]")].filter((one) => one.dataset.key === letter);
  if (!found.length) return;
  const next = found[(found.findIndex((one) => one.open) + 1) % found.length];
  next.open = true;
  next.querySelector("summary").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "j") walk(1);
  else if (event.key === "k") walk(-1);
  else if (event.key === "x") document.activeElement.closest(".row")?.querySelector("input")?.click();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus(), event.preventDefault();
  else if (event.key === "u") document.querySelector("a[rel=up]")?.click();
  else open(event.key);
});

tick();
counted();
setInterval(tick, 15000);
