// What the chat needs besides Khala: its backend, and a language model, which here is a clock that counts.
const { BACKEND = "http://127.0.0.1:4200", SECONDS = "20" } = process.env;
const TOKENS_PER_SECOND = 150;

/** The text of an answer of the backend. */
export async function ask(path) {
  const answer = await fetch(BACKEND + path);
  if (!answer.ok) throw new Error(`The backend answered ${answer.status}.`);
  return answer.text();
}

/** The tokens of an answer, as fast as a model makes them. */
export async function* model() {
  const begun = performance.now();
  for (let i = 1; i <= TOKENS_PER_SECOND * Number(SECONDS); i++) {
    const ms = begun + (1000 * i) / TOKENS_PER_SECOND - performance.now();
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    yield `${i} `;
  }
}
