// Put live numbers into their places. Text only ever goes in as text; without script the page shows them as of its load.
const source = new EventSource("/-/events");
let last = { texts: {}, bars: {} };

function show() {
  for (const place of document.querySelectorAll("[data-live]")) {
    const text = last.texts[place.dataset.live];
    if (text !== undefined && place.textContent !== text) place.textContent = text;
  }
  for (const bar of document.querySelectorAll("[data-bar]")) {
    const percent = last.bars[bar.dataset.bar];
    if (percent !== undefined) bar.setAttribute("width", percent.toFixed(2));
  }
}

source.addEventListener("message", (event) => {
  last = JSON.parse(event.data);
  document.body.dataset.connected = "yes";
  document.body.dataset.reached = last.reached ? "yes" : "no";
  show();
});
source.addEventListener("error", () => {
  document.body.dataset.connected = "no";
  for (const place of document.querySelectorAll('header [data-live="rate"]')) place.textContent = place.dataset.lost;
});
document.addEventListener("refreshed", show);
