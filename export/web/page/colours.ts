// Canvases in the reader's colours, light or dark: they are drawn again when these change.

/** Also those in a view that is not shown; one that was replaced is not held. */
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
