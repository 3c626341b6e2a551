// An authorization server on oidc-provider: node authorization_server.mjs OPTIONS, told as one line with its issuer.
// OPTIONS is JSON: `port`; `people`, the claims of each by name; `clients` that need no registration; `lifetime` of
// access tokens in seconds; `opaque`, which makes access tokens random text; `scopes`; `documents`, which takes
// client id metadata documents, also from this machine, and registers nobody.
// A person signs in by `login_hint`, or by the name that the form of the interaction sends. All consent to everything.
// NODE_PACKAGES names the node_modules directory, which is not above this file.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const { resolve } = createRequire(`${process.env.NODE_PACKAGES}/`);
const load = (name) => import(pathToFileURL(resolve(name)));
const { Provider, errors } = await load('oidc-provider');
const { createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify } = await load('jose');

const {
  port, people, clients = [], lifetime = 300, opaque = false, scopes = 'mcp admin', documents = false,
} = JSON.parse(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';

const jwks = { keys: [] };
const publicKeys = [];

for (const alg of ['RS256', 'ES256']) {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const about = { alg, kid: `${alg}-key`, use: 'sig' };
  jwks.keys.push({ ...(await exportJWK(privateKey)), ...about });
  publicKeys.push({ ...(await exportJWK(publicKey)), ...about });
}

const ours = createLocalJWKSet({ keys: publicKeys });

const provider = new Provider(issuer, {
  jwks,
  clients,
  cookies: { keys: ['the cookies of a test'] },
  claims: { openid: ['sub'], profile: ['name', 'groups'] },
  scopes: ['openid', 'offline_access', ...scopes.split(' ')],
  clientDefaults: { grant_types: ['authorization_code', 'refresh_token'] },
  pkce: { required: () => true },
  conformIdTokenClaims: false,
  issueRefreshToken: (ctx, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  extraTokenClaims: (ctx, token) => people[token.accountId],
  ttl: { AccessToken: lifetime, ClientCredentials: lifetime, Grant: 3600, Session: 3600, Interaction: 600 },
  findAccount: (ctx, id) => people[id] && { accountId: id, claims: () => ({ sub: id, name: id, ...people[id] }) },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  // Its own dispatcher refuses addresses of this machine, where the documents of tests are.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: !documents },
    ...(documents && { clientIdMetadataDocument: { enabled: true, ack: 'draft-02' } }),
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (ctx, client, oneOf) => (oneOf ? oneOf[0] : undefined),
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: scopes,
        audience: resource,
        accessTokenTTL: lifetime,
        accessTokenFormat: opaque ? 'opaque' : 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});

// RFC 8693: the person of an access token of this server gets one for another resource.
async function exchanged(ctx) {
  const { subject_token: subject, subject_token_type: type, resource, scope } = ctx.oidc.params;
  if (type !== ACCESS_TOKEN) throw new errors.InvalidRequest('subject_token_type is not supported');
  const { payload } = await jwtVerify(subject, ours, { issuer, typ: 'at+jwt' }).catch((error) => {
    throw new errors.InvalidGrant(`subject_token: ${error.message}`);
  });
  const token = new provider.AccessToken({ client: ctx.oidc.client, accountId: payload.sub, gty: EXCHANGE, scope });
  token.resourceServer = new provider.ResourceServer(resource, {
    scope: scopes, audience: resource, accessTokenTTL: lifetime, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
  });
  ctx.body = {
    access_token: await token.save(),
    issued_token_type: ACCESS_TOKEN,
    token_type: 'Bearer',
    expires_in: token.expiration,
    scope: token.scope,
  };
}

const wanted = ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope'];
provider.registerGrantType(EXCHANGE, exchanged, wanted);

async function consent({ prompt, params, session, grantId: given }) {
  const { details } = prompt;
  const grant =
    (given && (await provider.Grant.find(given))) ||
    new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (details.missingOIDCScope) grant.addOIDCScope(details.missingOIDCScope.join(' '));
  for (const [resource, missing] of Object.entries(details.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, missing.join(' '));
  }
  return { consent: { grantId: await grant.save() } };
}

async function submitted(req) {
  let body = '';
  for await (const piece of req) body += piece;
  return new URLSearchParams(body).get('person');
}

function form(ctx, text) {
  ctx.type = 'html';
  ctx.body = `<!DOCTYPE html><title>Sign in</title><p>${text}</p>
    <form method="post"><input name="person" autofocus><button>Sign in</button></form>`;
}

const counted = {};

provider.use(async (ctx, next) => {
  counted[ctx.path] = (counted[ctx.path] ?? 0) + 1;
  if (ctx.path === '/counted') {
    ctx.body = counted;
    return;
  }
  if (!ctx.path.startsWith('/interaction/')) {
    await next();
    return;
  }
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  const { prompt, params } = details;
  if (prompt.name === 'consent') {
    await provider.interactionFinished(ctx.req, ctx.res, await consent(details), { mergeWithLastSubmission: true });
    ctx.respond = false;
    return;
  }
  const person = ctx.method === 'POST' ? await submitted(ctx.req) : params.login_hint;
  if (!people[person]) {
    form(ctx, 'Who are you?');
    return;
  }
  await provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: person } });
  ctx.respond = false;
});

provider.on('server_error', (ctx, error) => console.error(error));
for (const event of ['authorization.error', 'grant.error', 'registration_create.error', 'introspection.error']) {
  provider.on(event, (ctx, error) => console.error(event, error.message, error.error_description, error.error_detail));
}
const server = provider.listen(port, '127.0.0.1', () => console.log(issuer));
// Clients keep an idle connection while people sign in. Node's five seconds end it when a crowded machine uses it next.
server.keepAliveTimeout = 60_000;
process.on('SIGTERM', () => {
  server.closeAllConnections();
  server.close(() => process.exit(0));
});
