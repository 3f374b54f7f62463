// Sign agent cards and verify them with @a2a-js/sdk. Reads one JSON object from stdin, writes one to stdout.
//
//     node cards.mjs sign    {"card", "key", "alg", "kid", "objects"}  ->  {"card"}
//     node cards.mjs verify  {"card", "jwks", "objects"}               ->  {"ok", "says"}
//
// `key` is a private key as JWK. With `objects` the card is handed over as the SDK's own objects, else as JSON.
// The packages are those of .peers/js, installed from the package files beside this one.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const load = createRequire(new URL("../../../../.peers/js/", import.meta.url));
const { AgentCard, generateAgentCardSignature, verifyAgentCardSignature } = load("@a2a-js/sdk");

console.debug = () => {}; // the SDK tells of every signature that does not fit, on stdout

async function sign({ card, key, alg, kid, objects }) {
  const signer = generateAgentCardSignature({ ...key, alg }, { alg, kid, typ: "JOSE" });
  const signed = await signer(objects ? AgentCard.fromJSON(card) : card);
  return { card: AgentCard.toJSON(objects ? signed : AgentCard.fromJSON(signed)) };
}

async function verify({ card, jwks, objects }) {
  const verifier = verifyAgentCardSignature(async (kid) => jwks.keys.find((each) => each.kid === kid));
  try {
    await verifier(objects ? AgentCard.fromJSON(card) : card);
  } catch (error) {
    return { ok: false, says: String(error) };
  }
  return { ok: true, says: "" };
}

const asked = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await { sign, verify }[process.argv[2]](asked)));
