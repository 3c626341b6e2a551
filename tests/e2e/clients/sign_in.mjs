// People who sign in for a TypeScript client: the SDK's OAuth client, and a browser that opens what it asks for.
// The environment names the person: SIGN_IN_AS. Without it a client does not sign in.
const REDIRECT_URL = 'http://127.0.0.1:9/callback';

// Signs in at an authorization URL; the URL of the client that the browser is then sent to, which is not opened.
async function approve(start, person) {
  const cookies = new Map();
  let [url, form] = [start, undefined];
  for (let step = 0; step < 20; step += 1) {
    const cookie = [...cookies].map((pair) => pair.join('=')).join('; ');
    const method = form ? 'POST' : 'GET';
    const page = await fetch(url, { method, body: form, headers: { cookie, accept: 'text/html' }, redirect: 'manual' });
    for (const set of page.headers.getSetCookie()) {
      const [name, ...value] = set.split(';')[0].split('=');
      if (value.join('=')) cookies.set(name, value.join('='));
      else cookies.delete(name);
    }
    const text = await page.text();
    const next = page.headers.get('location');
    if (next?.startsWith(REDIRECT_URL)) return new URL(next);
    if (!next && form) throw new Error(`${url}: ${page.status} ${text}`);
    form = next ? undefined : new URLSearchParams({ person });
    url = next ? new URL(next, url) : url;
  }
  throw new Error(`no end of ${start}`);
}

class Provider {
  redirectUrl = REDIRECT_URL;

  clientMetadata = { client_name: 'client of the tests', redirect_uris: [REDIRECT_URL] };

  constructor(person) {
    this.person = person;
    this.wanted = crypto.randomUUID();
  }

  state() {
    return this.wanted;
  }

  clientInformation() {
    return this.client;
  }

  saveClientInformation(client) {
    this.client = client;
  }

  tokens() {
    return this.kept;
  }

  saveTokens(tokens) {
    this.kept = tokens;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  codeVerifier() {
    return this.verifier;
  }

  async redirectToAuthorization(url) {
    this.answer = (await approve(url, this.person)).searchParams;
    if (this.answer.get('state') !== this.wanted) throw new Error('the state is of another sign-in');
  }
}

// The provider of the person, signed in by `attempt`: it asks a server for something over a transport with that
// provider, and ends with the error of the transport. `finish` gives the transport the parameters of the answer.
export async function signedIn(attempt, finish) {
  const person = process.env.SIGN_IN_AS;
  if (!person) return undefined;
  const provider = new Provider(person);
  await attempt(provider).catch((error) => {
    if (!provider.answer) throw error;
  });
  if (provider.answer) await finish(provider.answer);
  return provider;
}
