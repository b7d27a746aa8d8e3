// A page that is opened from the disk may start no worker, and the search needs one: here it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>
        window.postMessage = (data) => frameElement.worker.dispatchEvent(new MessageEvent("message", { data }));
        window.importScripts = () => {};
      </script><script src="${url}"></script>`;
      frame.worker = this;
      this.ready = new Promise((resolve) => (frame.onload = () => resolve(frame.contentWindow)));
      document.body.append(frame);
    }
    async postMessage(data) {
      (await this.ready).dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {}
  };
}
