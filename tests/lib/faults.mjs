// Faults of a cluster by name. Each takes {cluster, dice, isFree} and answers {node?, heal?}: the node
// that it hit, and a function that ends the fault. null: no node is free for it now.

const DIRECTIONS = { up: ["toServer"], down: ["toClient"], both: ["toServer", "toClient"] };

/** Waits for time. A fault lasts for a random time; no check depends on it. */
const lasts = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function writerOf({ cluster, isFree }) {
  const found = await cluster.knownWriter();
  return isFree(found.node) ? found : null;
}

async function followerOf(given) {
  const { node: writer } = await given.cluster.knownWriter();
  const followers = given.cluster.nodes.filter((node) => node !== writer && given.isFree(node));
  return followers.length > 0 ? given.dice.pick(followers) : null;
}

async function kill(node) {
  if (!node) return null;
  await node.kill();
  return { node, heal: () => node.start() };
}

function stop(node) {
  if (!node) return null;
  node.stop();
  return { node, heal: () => node.continue() };
}

function cut(node, directions) {
  if (!node) return null;
  node.cut(...directions);
  return { node, heal: () => node.heal() };
}

const onWriter = (act) => async (given) => {
  const found = await writerOf(given);
  return found ? act(found, given) : null;
};
const onFollower = (act) => async (given) => act(await followerOf(given), given);

const restarts = (mode) => async ({ cluster, dice }) => {
  await cluster.database.stop(mode);
  await lasts(dice.below(1500));
  await cluster.database.start();
  return {};
};

/** Ends the server of the wake-up driver, or its sessions if the database is the driver. */
async function driverKilled({ cluster }) {
  if (cluster.driver === "memory") return null;
  if (!cluster.wakeups) {
    await cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'khala-fanout'");
    return {};
  }
  await cluster.wakeups.crash();
  return { heal: () => cluster.wakeups.start() };
}
driverKilled.isDriver = true;

export const FAULTS = {
  writer_killed: onWriter(({ node }) => kill(node)),
  writer_session_killed: onWriter(async ({ pid }, { cluster }) => {
    await cluster.sql(`SELECT pg_terminate_backend(${pid})`);
    return {};
  }),
  writer_stopped: onWriter(({ node }) => stop(node)),
  writer_ended: onWriter(async ({ node }) => {
    await node.end();
    return { node, heal: () => node.start() };
  }),
  follower_killed: onFollower(kill),
  follower_stopped: onFollower(stop),
  database_restarted: restarts("fast"),
  database_crashed: restarts("immediate"),
  ...Object.fromEntries(Object.entries(DIRECTIONS).flatMap(([name, directions]) => [
    [`writer_cut_${name}`, onWriter(({ node }) => cut(node, directions))],
    [`follower_cut_${name}`, onFollower((node) => cut(node, directions))],
  ])),
  driver_killed: driverKilled,
};
