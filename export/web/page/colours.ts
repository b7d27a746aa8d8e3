// Canvases in the reader's colour scheme, light or dark. They are redrawn when it changes.

/** Canvases of all views, shown or not. The references are weak, so a replaced canvas is freed. */
const canvases = new Set<WeakRef<HTMLCanvasElement>>();

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const canvas of canvases) canvas.deref()?.dispatchEvent(new Event("colours"));
});

/** Draws a canvas, now and whenever the colours change. */
export function inColours(canvas: HTMLCanvasElement, draw: () => void): void {
  for (const one of canvases) if (!one.deref()) canvases.delete(one);
  canvases.add(new WeakRef(canvas));
  canvas.addEventListener("colours", draw);
  draw();
}
