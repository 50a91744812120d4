// cache.mjs < ANSWERS: says for how long a cache may hand out each of the answers, which it has just got. ANSWERS is a JSON array of
// {headers, shared}; the output is one of seconds: fresh, and all in all with what RFC 5861 allows.
import CachePolicy from 'http-cache-semantics'
import { json } from 'node:stream/consumers'

const request = { method: 'GET', url: '/keys.json', headers: { host: 'oidc.example.com' } }
const all = (await json(process.stdin)).map(({ headers, shared }) => {
  const policy = new CachePolicy(request, { status: 200, headers }, { shared })
  const held = policy.timeToLive() / 1000
  return { fresh: Math.max(0, policy.maxAge() - policy.age()), held: policy.storable() ? held : 0 }
})
console.log(JSON.stringify(all))
