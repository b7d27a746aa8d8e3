// Tabs with the usual keys: the arrows, Home and End move between them.

import { el } from "./dom.js";

export interface Tab {
  name: string;
  /** Makes the panel when it is first shown. */
  make(): HTMLElement;
}

/** Tabs above their panel, with tab number `first` shown at the start. */
export function tabs(all: readonly Tab[], first: number, onShow: (place: number) => void): HTMLElement {
  const made = new Map<number, HTMLElement>();
  const panel = el("div", { role: "tabpanel", id: "panel" });
  const buttons = all.map((tab, place) =>
    el(
      "button",
      { type: "button", role: "tab", "aria-controls": "panel", id: `tab-${place}`, onclick: () => show(place) },
      tab.name,
    ),
  );
  const list = el("div", { role: "tablist", "aria-label": "Views", onkeydown: move }, ...buttons);

  function show(place: number): void {
    buttons.forEach((button, other) => {
      button.setAttribute("aria-selected", String(other === place));
      button.tabIndex = other === place ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `tab-${place}`);
    if (!made.has(place)) made.set(place, all[place].make());
    panel.replaceChildren(made.get(place)!);
    onShow(place);
  }

  function move(event: KeyboardEvent): void {
    const now = buttons.findIndex((button) => button.tabIndex === 0);
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const place = (to + all.length) % all.length;
    show(place);
    buttons[place].focus();
  }

  show(first);
  return el("div", {}, list, panel);
}
