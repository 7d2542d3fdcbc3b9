// Charts for the mouse: what the server drew is replaced by the same numbers as a figure of plotly, once it comes into
// view. Plotly is large, so nothing of it is fetched before; without script, and on paper, the drawings stay.
const charts = [...document.querySelectorAll("[data-chart]")];
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Set();
let loading;

function plotly(address) {
  loading ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", fail);
    script.src = address;
    document.head.append(script);
  });
  return loading;
}

function figure(chart) {
  const css = getComputedStyle(document.documentElement);
  const tone = (_, name) => css.getPropertyValue(`--${name}`).trim();
  return JSON.parse(chart.dataset.figure.replace(/var\(--([a-z]+)\)/g, tone));
}

function room(chart) {
  const place = document.createElement("div");
  place.className = "plot";
  chart.prepend(place);
  return place;
}

function giveUp(chart) {
  chart.querySelector(".plot")?.remove();
  for (const part of chart.querySelectorAll(".drawn")) part.hidden = false;
}

async function draw(chart) {
  const library = await plotly(chart.dataset.chart);
  const place = chart.querySelector(".plot") ?? room(chart), { data, layout } = figure(chart);
  for (const part of chart.querySelectorAll(".drawn")) part.hidden = true;
  await library.react(place, data, layout, { displayModeBar: false, responsive: true });
  for (const svg of place.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true"); // the caption and table say it
  for (const hint of chart.querySelectorAll(".hint")) hint.hidden = false;
  drawn.add(chart);
  chart.dataset.drawn = "yes";
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    draw(target).catch(() => giveUp(target));
  }
}, { rootMargin: "200px" });

for (const chart of charts) {
  if (!chart.querySelector(".drawn")) room(chart);
  seen.observe(chart);
}
dark.addEventListener("change", () => drawn.forEach(draw));
