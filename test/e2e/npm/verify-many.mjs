// verify-many.mjs AUDIENCE: a web service with npm jose that stays. A line on standard input has an id, a token, its issuer
// and the URL of the JWKS to verify it with, as JSON; the answer is a line with the id, and the error if the token is refused.
// jose ignores max-age: by itself it keeps a copy for ten minutes, and for thirty seconds asks for no other, whatever the kid.
// The line's hold takes the place of both, in milliseconds.
import { createRemoteJWKSet, jwtVerify } from 'jose'
import { createInterface } from 'node:readline'

const [audience] = process.argv.slice(2)
const copies = new Map()

async function answer({ id, url, hold, issuer, token }) {
  if (!copies.has(url)) {
    copies.set(url, createRemoteJWKSet(new URL(url), { cooldownDuration: hold, cacheMaxAge: hold, timeoutDuration: 5000 }))
  }
  try {
    await jwtVerify(token, copies.get(url), { issuer, audience })
    return { id }
  } catch (err) {
    return { id, error: err.code ?? String(err) }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line)).then((a) => console.log(JSON.stringify(a)))
}
