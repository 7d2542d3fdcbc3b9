// One key for each thing that a page can do: whatever carries data-key is clicked, j and k follow the page's own links
// to the next and the previous pair, or walk through a list of them. In a list, 1 to 6 open the chosen pair in a view of
// the comparer, and a, r and u put a label on it.
const links = { j: 'a[rel="next"]', k: 'a[rel="prev"]' };

function walk(key) {
  const cards = [...document.querySelectorAll(".pairs a")];
  if (!cards.length) return document.querySelector(links[key])?.click();
  const here = cards.indexOf(document.activeElement);
  const there = here < 0 ? (key === "j" ? 0 : cards.length - 1) : here + (key === "j" ? 1 : -1);
  if (cards[there]) cards[there].focus();
  else document.querySelector(links[key])?.click();
}

const labels = { a: "acceptable", r: "real", u: "unsure" };

function choose(key) {
  const card = document.activeElement?.closest("[data-pair]");
  const form = document.querySelector("[data-quick]");
  if (!card || !form) return false;
  if (/^[1-6]$/.test(key)) {
    const there = new URL(card.href);
    there.hash = `view-${key}`;
    location.assign(there);
  } else if (Object.hasOwn(labels, key)) {
    form.action = `${card.dataset.pair}/label`;
    form.elements.label.value = labels[key];
    form.submit();
  } else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && event.target.matches("input:not([type=range]), textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (Object.hasOwn(links, event.key)) walk(event.key);
  else if (choose(event.key)) return;
  else if (/^[a-z0-9+-]$/.test(event.key)) document.querySelector(`[data-key="${event.key}"]`)?.click();
});
