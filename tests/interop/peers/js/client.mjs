// Drive an agent through the client of @a2a-js/sdk, one JSON line per case.
//
//     node client.mjs URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3 [CASE]
//
// The agent must have the skills of tests/interop/agents.py. Exit code 1: a case failed.
// The packages are those of .peers/js, installed from the package files beside this one.

import { createRequire } from "node:module";

import { CASES, CaseFailed, countingCall, countingFetch, described, expect, expectEqual } from "./cases.mjs";

const load = createRequire(new URL("../../../../.peers/js/", import.meta.url));
const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } =
  load("@a2a-js/sdk/client");
const { GrpcTransportFactory } = load("@a2a-js/sdk/client/grpc");
const grpc = load("@grpc/grpc-js");

const CASE_TIMEOUT_MS = 20_000;

/** The card with the one interface to test: of several the SDK would always take 1.0. */
function narrowed(card, transport, version) {
  const offered = card.supportedInterfaces;
  const speaks = ({ protocolBinding, protocolVersion }) =>
    protocolBinding === transport && (protocolVersion === version || protocolVersion.startsWith(`${version}.`));
  const names = offered.map((each) => `${each.protocolBinding} ${each.protocolVersion}`);
  expect(offered.some(speaks), `the card offers ${names}, not ${transport} ${version}`);
  expect(card.capabilities?.streaming, "the card does not claim streaming: the client would silently not stream");
  return { ...card, supportedInterfaces: [offered.find(speaks)] };
}

const TOKEN = "Bearer open-sesame";

function fetchingWithToken(input, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("Authorization", TOKEN);
  return countingFetch(input, { ...init, headers });
}

function callingWithToken(options, nextCall) {
  return new grpc.InterceptingCall(nextCall(options), {
    start(metadata, listener, next) {
      metadata.set("authorization", TOKEN);
      next(metadata, listener);
    },
  });
}

function factoryOf(cardResolver, fetchImpl, ...interceptors) {
  const legacyCompat = { enabled: true };
  const transports = [
    new JsonRpcTransportFactory({ fetchImpl, legacyCompat }),
    new RestTransportFactory({ fetchImpl, legacyCompat }),
    new GrpcTransportFactory({ grpcCallOptions: { interceptors }, legacyCompat }),
  ];
  return new ClientFactory({ transports, cardResolver });
}

async function discover(url, transport, version) {
  const cardResolver = new DefaultAgentCardResolver({ fetchImpl: countingFetch, legacyCompat: { enabled: true } });
  const factory = factoryOf(cardResolver, countingFetch, countingCall);
  const card = narrowed(await cardResolver.resolve(url), transport, version);
  // Without these claims the SDK refuses, or answers from its own copy of the card, and nothing would be tested.
  const capabilities = { ...card.capabilities, pushNotifications: true, extendedAgentCard: true };
  const client = await factory.createFromAgentCard(card);
  const claiming = await factory.createFromAgentCard({ ...card, capabilities });
  const knowing = factoryOf(cardResolver, fetchingWithToken, countingCall, callingWithToken);
  const known = await knowing.createFromAgentCard(card);
  expectEqual(client.protocolVersion, version, "the version the client speaks");
  const endpoint = card.supportedInterfaces[0].url;
  return { card, client, claiming, known, transport, isLegacy: version === "0.3", endpoint };
}

function late(milliseconds) {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new CaseFailed(`no end after ${milliseconds / 1000} s`)), milliseconds).unref();
  });
}

async function passes(name, run) {
  let ok = false;
  let detail;
  try {
    detail = await Promise.race([run(), late(CASE_TIMEOUT_MS)]);
    ok = true;
  } catch (error) {
    // Whatever the SDK trips over is a finding of this case.
    detail = error instanceof CaseFailed ? error.message : described(error);
  }
  console.log(JSON.stringify({ case: name, ok, detail }));
  return ok;
}

async function main(url, transport, version, only) {
  const names = only ? [only] : Object.keys(CASES);
  let peer;
  const found = await passes("card", async () => {
    peer = await discover(url, transport, version);
    return peer.endpoint;
  });
  if (!found) return 1;
  let failures = 0;
  for (const name of names) {
    if (!(await passes(name, () => CASES[name](peer)))) failures += 1;
  }
  return failures === 0 ? 0 : 1;
}

const [url, transport, version, only] = process.argv.slice(2);
const isUsage = ["JSONRPC", "HTTP+JSON", "GRPC"].includes(transport) && ["1.0", "0.3"].includes(version);
if (!isUsage || (only && !Object.hasOwn(CASES, only))) {
  console.error("usage: node client.mjs URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3 [CASE]");
  process.exit(2);
}
// A case that timed out may have left a stream open, which would keep the process alive.
process.exit(await main(url, transport, version, only));
