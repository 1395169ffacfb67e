// The switcher of versions, on the pages of a site that has several (docs/versions.py).
document.addEventListener("DOMContentLoaded", async () => {
  const label = document.querySelector(".versions");
  if (!label) return;
  const root = new URL(label.dataset.root, location.href);
  const list = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!list?.ok) return; // as for pages that are opened as files
  const shown = root.pathname.split("/").at(-2);
  const select = label.querySelector("select");
  for (const folder of await list.json()) select.add(new Option(folder, folder, false, folder === shown));
  label.hidden = false;
  select.addEventListener("change", async () => {
    const there = new URL(`../${select.value}/`, root);
    const page = new URL(`${label.dataset.page}.html`, there);
    const found = await fetch(page, { method: "HEAD" }).catch(() => null);
    location.href = found?.ok ? page : there;
  });
});
