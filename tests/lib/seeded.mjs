// Random numbers that repeat: the same seed gives the same sequence.

/** The mulberry32 sequence of a seed: a fraction, a number below, one of a list, some of a list. */
export function seeded(seed) {
  let state = seed >>> 0;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (count) => Math.floor(random() * count);
  return {
    random,
    below,
    pick: (list) => list[below(list.length)],
    some: (list, chance) => list.filter(() => random() < chance),
  };
}
