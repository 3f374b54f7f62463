// Loaded before a server that would listen on every address of the machine: it listens on this machine alone, and
// says where, so that it can be given any free port.
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.log(`listening at http://127.0.0.1:${this.address().port}`));
  return listen.call(this, Number(port), "127.0.0.1", ...rest);
};
