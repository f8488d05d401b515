// Browsers start no worker for a page that is opened from disk. There, the search's worker runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      this.ready = new Promise(resolve => {
        frame.onload = () => {
          frame.onload = null
          const scope = frame.contentWindow
          scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = scope.document.createElement("script")
          script.onload = () => resolve(scope)
          script.src = new URL(url, document.baseURI)
          scope.document.head.append(script)
        }
      })
      document.documentElement.append(frame)
    }

    postMessage(data) {
      this.ready.then(scope => scope.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
