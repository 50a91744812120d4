// google.mjs: gets an access token with the credential configuration in GOOGLE_APPLICATION_CREDENTIALS as a Node workload would, and
// prints it.
import { GoogleAuth } from 'google-auth-library'

try {
  const client = await new GoogleAuth({ scopes: 'https://www.googleapis.com/auth/cloud-platform' }).getClient()
  const { token } = await client.getAccessToken()
  console.log(token)
} catch (err) {
  // Refused is 3: a crash or an unreachable server (1) must not pass for a refusal.
  console.error(err.message)
  process.exit(err.response ? 3 : 1)
}
