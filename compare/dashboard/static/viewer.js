// The picture comparer: six views of the same two pictures, with one zoom and one place for all of them.
// Pictures are moved between views, never fetched twice: every fetch of a body is audited.
const viewer = document.querySelector("[data-viewer]");
const BLINK_MS = 600, MOST_ZOOM = 16, TILE = 32;

function comparer() {
  const pics = [...viewer.querySelectorAll("figure")].map((figure) => figure.querySelector(".pic"));
  const layers = pics.map((pic) => pic?.querySelector(".layers"));
  const tools = document.querySelector("[data-tools]");
  const mix = tools.querySelector("input[type=range]");
  const state = { mode: "side", zoom: 1, x: 0, y: 0, blink: 0 };
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const stacked = (mode) => ["slider", "onion", "blink"].includes(mode);

  function place() {
    for (const layer of layers) {
      if (layer) layer.style.transform = `translate(${state.x}px, ${state.y}px) scale(${state.zoom})`;
    }
    tools.querySelector("[data-zoom]").textContent = `${Math.round(state.zoom * 100)} %`;
  }

  function blend() {
    const [, over] = layers;
    over.style.clipPath = state.mode === "slider" ? `inset(0 0 0 ${mix.value}%)` : "";
    over.style.opacity = state.mode === "onion" ? String(mix.value / 100) : "";
    over.style.visibility = "";
  }

  function show(mode) {
    clearInterval(state.blink);
    state.mode = viewer.dataset.mode = mode;
    (stacked(mode) ? pics[0] : pics[1]).append(layers[1]);
    mix.closest("label").hidden = !["slider", "onion"].includes(mode);
    blend();
    if (mode === "blink" && !still) state.blink = setInterval(swap, BLINK_MS);
    if (mode === "tile") toTile(); else place();
    for (const button of tools.querySelectorAll("[data-mode]")) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    }
  }

  function swap() {
    layers[1].style.visibility = layers[1].style.visibility === "hidden" ? "" : "hidden";
  }

  function toTile() {
    const shot = layers[0].querySelector("img"), [left, top] = viewer.dataset.tile.split(",").map(Number);
    const scale = shot.clientWidth / Number(viewer.dataset.width);
    zoomTo(Math.min(MOST_ZOOM, pics[0].clientWidth / (3 * TILE * scale)));
    state.x = (shot.clientWidth / 2 - (left + TILE / 2) * scale) * state.zoom;
    state.y = (shot.clientHeight / 2 - (top + TILE / 2) * scale) * state.zoom;
    place();
  }

  function zoomTo(zoom) {
    const next = Math.min(MOST_ZOOM, Math.max(1, zoom));
    state.x *= next / state.zoom;
    state.y *= next / state.zoom;
    state.zoom = next;
    if (next === 1) state.x = state.y = 0;
    place();
  }

  function drag(event) {
    if (event.buttons !== 1 || state.zoom === 1) return;
    state.x += event.movementX;
    state.y += event.movementY;
    place();
  }

  function steer(event) {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (!step || state.zoom === 1) return;
    event.preventDefault();
    state.x += step[0];
    state.y += step[1];
    place();
  }

  const acts = { in: () => zoomTo(state.zoom * 1.5), out: () => zoomTo(state.zoom / 1.5), whole: () => zoomTo(1) };
  tools.addEventListener("click", (event) => {
    const { mode, act, ground } = event.target.closest("button")?.dataset ?? {};
    if (mode) state.mode === "blink" && mode === "blink" && still ? swap() : show(mode);
    if (act === "outline") viewer.classList.toggle("bare");
    else if (act) acts[act]();
    if (ground) viewer.dataset.ground = ground;
  });
  mix.addEventListener("input", blend);
  viewer.addEventListener("pointermove", drag);
  viewer.addEventListener("keydown", steer);
  viewer.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && state.zoom === 1) return; // an ordinary wheel scrolls the page
    event.preventDefault();
    zoomTo(state.zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2));
  }, { passive: false });
  tools.hidden = false;
  const asked = tools.querySelector(`[data-mode][data-key="${location.hash.match(/^#view-([1-6])$/)?.[1] ?? 1}"]`);
  show(asked?.dataset.mode ?? "side");
}

if (viewer) comparer();
