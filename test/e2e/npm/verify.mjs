// verify.mjs ISSUER AUDIENCE < TOKEN: verifies a token as a web service with npm jose would, and prints its payload.
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { text } from 'node:stream/consumers'

const [issuer, audience] = process.argv.slice(2)
const token = (await text(process.stdin)).trim()

const discovery = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json()
if (discovery.issuer !== issuer) {
  throw new Error(`the discovery document names the issuer ${discovery.issuer}`)
}
const keys = createRemoteJWKSet(new URL(discovery.jwks_uri))
try {
  const { payload } = await jwtVerify(token, keys, { issuer, audience })
  console.log(JSON.stringify(payload))
} catch (err) {
  // Refused is 3: a crash or an unreachable server (1) must not pass for a refusal.
  console.error(err.code ?? err)
  process.exit(err.code?.startsWith('ERR_J') ? 3 : 1)
}
