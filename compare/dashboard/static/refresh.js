// Fetch the overview again every ten seconds while it is looked at, and replace what changed; without script: reload.
const EVERY_MS = 10_000;

async function refresh() {
  if (document.hidden || document.querySelector("main")?.contains(document.activeElement)) return;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (!answer?.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of ["main", "header.top .live", "footer.account"]) {
    const here = document.querySelector(part);
    const there = page.querySelector(part);
    if (here && there && here.innerHTML !== there.innerHTML) here.replaceWith(document.adoptNode(there));
  }
  document.dispatchEvent(new Event("refreshed"));
}

setInterval(refresh, EVERY_MS);
