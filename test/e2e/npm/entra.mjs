// entra.mjs: exchanges the token in AZURE_FEDERATED_TOKEN_FILE for an access token as a Node workload would, and prints it.
import { WorkloadIdentityCredential } from '@azure/identity'

try {
  const { token } = await new WorkloadIdentityCredential().getToken('https://management.azure.com/.default')
  console.log(token)
} catch (err) {
  // Refused is 3: a crash or an unreachable server (1) must not pass for a refusal.
  console.error(err.message)
  process.exit(/AADSTS\d+/.test(err.message) ? 3 : 1)
}
