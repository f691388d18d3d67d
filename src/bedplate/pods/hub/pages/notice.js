// Shows the hub's notices as notifications of JupyterLab: a prebuilt extension, as a module federation container.
(function () {
  "use strict";
  const plugin = {
    id: "bedplate-notice:plugin",
    autoStart: true,
    activate: function (app) {
      const settings = app.serviceManager.serverSettings;
      let shown = "";
      let id = null;
      const look = async function () {
        try {
          const answer = await fetch(settings.baseUrl + "bedplate/notice", { credentials: "same-origin" });
          const text = answer.ok ? (await answer.json()).text : "";
          if (text === shown) return;
          if (id !== null) await app.commands.execute("apputils:dismiss-notification", { id: id });
          id = null;
          shown = text;
          if (text) {
            id = await app.commands.execute("apputils:notify", {
              message: text,
              type: "warning",
              options: { autoClose: false },
            });
          }
        } catch (error) {
          console.debug("bedplate-notice", error);
        }
      };
      app.started.then(function () {
        look();
        setInterval(look, 10000);
      });
    },
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["bedplate-notice"] = {
    init: function () {},
    get: async function () {
      return function () {
        return { __esModule: true, default: plugin };
      };
    },
  };
})();
