{{- /* keypost.alerts: every alert as alert, severity, for, expr, summary, description. README.md has a runbook for each. */ -}}
{{- define "keypost.alerts" -}}
{{- $of := .of }}{{ $rules := .rules }}
- alert: KeypostDown
  severity: critical
  for: 2m
  expr: absent(up{ {{- $of }},endpoint="admin"} == 1)
  summary: No keypostd answers
  description: Relying parties see nothing but what they and a CDN have cached.
- alert: KeypostReplicaDown
  severity: warning
  for: 10m
  expr: up{ {{- $of }}} == 0
  summary: A keypostd or its mirror does not answer
  description: "{{`{{ $labels.endpoint }} of pod {{ $labels.pod }} cannot be scraped.`}}"
- alert: KeypostKeySetsRejected
  severity: warning
  for: 5m
  expr: max by (namespace, key_set, reason) ({__name__=~"keypost_key_set_rejected|keypost_mirror_key_set_refused",{{ $of }},reason!="missing"}) == 1
  summary: A stored key set is rejected
  description: "{{`Key set {{ $labels.key_set }} is not served as it is stored ({{ $labels.reason }}). Its last good version is; promotions are blocked. /issuers of a pod's admin listener, or its log, says more.`}}"
- alert: KeypostKeySetsMissing
  severity: warning
  for: 5m
  expr: max by (namespace, key_set) ({__name__=~"keypost_key_set_rejected|keypost_mirror_key_set_refused",{{ $of }},reason="missing"}) == 1
  summary: A key set that is served is not in the store
  description: "{{`Key set {{ $labels.key_set }} has vanished from the store without a tombstone. Its last good version is served. Do not restart or scale anything before the store is whole.`}}"
- alert: KeypostReadFailing
  severity: warning
  for: 5m
  expr: max by (namespace, pod) (keypost_key_sets_read_failing{ {{- $of }}}) == 1
  summary: keypostd cannot list its directory
  description: "{{`Pod {{ $labels.pod }} serves what it read last. Changes and revocations do not reach it.`}}"
- alert: KeypostReadStale
  severity: warning
  for: 5m
  expr: time() - min by (namespace, pod) (keypost_key_sets_last_complete_read_timestamp_seconds{ {{- $of }}}) > {{ int $rules.staleSeconds }}
  summary: keypostd has not read its directory for long
  description: "{{`Pod {{ $labels.pod }} last read everything {{ $value | humanizeDuration }} ago.`}}"
{{- if include "keypost.mirrored" .root }}
- alert: KeypostMirrorStale
  severity: warning
  for: 5m
  expr: time() - min by (namespace, pod) (keypost_mirror_last_complete_timestamp_seconds{ {{- $of }}}) > {{ int $rules.staleSeconds }}
  summary: The copy of the store is old
  description: "{{`The mirror of pod {{ $labels.pod }} was last complete {{ $value | humanizeDuration }} ago. All is served; changes and revocations do not arrive.`}}"
- alert: KeypostMirrorStaleForLong
  severity: critical
  for: 2m
  expr: time() - min by (namespace, pod) (keypost_mirror_last_complete_timestamp_seconds{ {{- $of }}}) > {{ int $rules.staleCriticalSeconds }}
  summary: The copy of the store is far too old
  description: "{{`The mirror of pod {{ $labels.pod }} was last complete {{ $value | humanizeDuration }} ago. A key that is revoked now stays published.`}}"
- alert: KeypostStoreFailing
  severity: warning
  for: 5m
  expr: max by (namespace, pod) (keypost_mirror_failing{ {{- $of }}}) == 1
  summary: The store cannot be listed
  description: "{{`The mirror of pod {{ $labels.pod }} cannot list or read the store, or write its copy. What it copied last is served.`}}"
{{- end }}
{{- if ne .root.Values.tls.mode "off" }}
- alert: KeypostCertificateExpiring
  severity: warning
  for: 1h
  expr: min by (namespace, certificate) (keypost_tls_certificate_not_after_timestamp_seconds{ {{- $of }}}) - time() < {{ int $rules.certificateDays }} * 86400
  summary: The TLS certificate expires soon
  description: "{{`{{ $labels.certificate }} expires in {{ $value | humanizeDuration }}. Then no relying party accepts any token.`}}"
- alert: KeypostCertificateExpiringSoon
  severity: critical
  for: 5m
  expr: min by (namespace, certificate) (keypost_tls_certificate_not_after_timestamp_seconds{ {{- $of }}}) - time() < 2 * 86400
  summary: The TLS certificate expires within two days, or has
  description: "{{`{{ $labels.certificate }} expires in {{ $value | humanizeDuration }}. Then no relying party accepts any token.`}}"
- alert: KeypostCertificateReloadFailing
  severity: warning
  for: 15m
  expr: max by (namespace, pod) (keypost_tls_reload_failing{ {{- $of }}}) == 1
  summary: A new TLS certificate cannot be used
  description: "{{`Pod {{ $labels.pod }} serves with the previous one.`}}"
- alert: KeypostCertificateOrderFailing
  severity: warning
  for: 6h
  expr: max by (namespace, certificate) (keypost_tls_order_failing{ {{- $of }}}) == 1
  summary: A certificate cannot be renewed
  description: "{{`The ACME CA gives no certificate for {{ $labels.certificate }}. The one in use stays until it expires.`}}"
{{- end }}
- alert: KeypostClientCAExpiring
  severity: warning
  for: 1h
  expr: min by (namespace) (keypost_shield_client_ca_not_after_timestamp_seconds{ {{- $of }},which="first"}) - time() < {{ int $rules.certificateDays }} * 86400
  summary: A CA of the CDN's client certificate expires soon, or has expired
  description: "{{`It expires in {{ $value | humanizeDuration }}. Then keypostd lets nobody in whose certificate it signed.`}}"
- alert: KeypostShieldRefusing
  severity: warning
  for: 10m
  expr: |-
    (sum by (namespace) (rate(keypost_shield_refused_total{ {{- $of }}}[10m])) + sum by (namespace) (rate(keypost_tls_handshake_errors_total{ {{- $of }},reason=~"client_certificate_.+"}[10m]))) > 0.05
    unless sum by (namespace) (rate(keypost_http_requests_total{ {{- $of }}}[10m])) > 0.05
  summary: The shield refuses requests, and hardly lets one in
  description: "{{`{{ $value }} requests a second are refused: the CDN may show another secret or certificate than keypostd knows, and serve old copies until they run out.`}}"
- alert: KeypostKeyOld
  severity: warning
  for: 1h
  expr: time() - min by (namespace, key_set) (keypost_key_set_oldest_active_key_timestamp_seconds{ {{- $of }}}) > {{ int $rules.keyAgeWarningDays }} * 86400
  summary: A signing key is due for rotation
  description: "{{`The active key of {{ $labels.key_set }} has signed for {{ $value | humanizeDuration }}.`}}"
- alert: KeypostKeyTooOld
  severity: warning
  for: 1h
  expr: time() - min by (namespace, key_set) (keypost_key_set_oldest_active_key_timestamp_seconds{ {{- $of }}}) > {{ int $rules.keyAgeCriticalDays }} * 86400
  summary: A signing key is far too old
  description: "{{`The active key of {{ $labels.key_set }} has signed for {{ $value | humanizeDuration }}.`}}"
- alert: KeypostForcedPromotion
  severity: warning
  for: 0m
  expr: time() - max by (namespace, key_set) (keypost_key_set_forced_promotion_timestamp_seconds{ {{- $of }}}) < 86400
  summary: A key was promoted past its gate
  description: "{{`A key of {{ $labels.key_set }} was promoted with --force in the last day: relying parties whose caches do not have it may refuse its tokens. The history of the key set says who did it and why.`}}"
{{- if $rules.keyChanges }}
- alert: KeypostKeysChanged
  severity: info
  for: 0m
  expr: time() - max by (namespace, key_set) (keypost_key_set_keys_changed_timestamp_seconds{ {{- $of }}}) < 900
  summary: Published keys have changed
  description: "{{`Keys of {{ $labels.key_set }}, or their states, changed {{ $value | humanizeDuration }} ago. A change that nobody planned is to be looked at.`}}"
{{- end }}
- alert: KeypostUnavailable
  severity: critical
  for: 5m
  expr: sum by (namespace) (rate(keypost_http_requests_total{ {{- $of }},code="503"}[5m])) > 0
  summary: keypostd answers 503
  description: "{{`{{ $value | humanize }} answers per second: a request reached a keypostd that has not read its key sets yet.`}}"
- alert: KeypostConnectionsNearLimit
  severity: warning
  for: 10m
  expr: max by (namespace, pod) (keypost_connections_open{ {{- $of }}} / keypost_connections_max{ {{- $of }}}) > 0.8
  summary: Connections are close to their limit
  description: "{{`Pod {{ $labels.pod }} has {{ $value | humanizePercentage }} of its connections open; beyond that idle ones make room, and where none is idle new ones wait.`}}"
- alert: KeypostReplicasDisagree
  severity: warning
  for: 15m
  expr: max by (namespace) (keypost_issuers{ {{- $of }}}) != min by (namespace) (keypost_issuers{ {{- $of }}})
  summary: Replicas serve different numbers of issuers
  description: "{{`One serves {{ $value }} issuers and another fewer. A new one may see none of what others hold as their last good version.`}}"
{{- end }}

{{- /* keypost.watchAlerts: those of what keypost watch sees of the issuers from outside. */ -}}
{{- define "keypost.watchAlerts" -}}
{{- $of := .of }}{{ $rules := .rules }}
{{- /* For a quarter of an hour: names lead to one edge after the other, and a watch that restarts has seen nothing yet. */}}
- alert: KeypostRogueKey
  severity: critical
  for: 0m
  expr: max by (namespace, key_set, issuer) (max_over_time(keypost_watch_rogue_key{ {{- $of }}}[15m])) == 1
  summary: A stranger's key is published
  description: "{{`Under {{ $labels.issuer }} (key set {{ $labels.key_set }}) a key is published that the store never had. Anyone who holds its private half can act as any service account of that cluster. The log of the watch names the key and the address.`}}"
- alert: KeypostServedNotStored
  severity: warning
  for: 10m
  expr: max by (namespace, key_set, issuer) (keypost_watch_served_not_stored{ {{- $of }}}) == 1
  summary: Keys are not published as they are stored
  description: "{{`What {{ $labels.issuer }} serves is not key set {{ $labels.key_set }}, for longer than caches explain: a new key is not there yet, or one that was taken out still is.`}}"
- alert: KeypostGoneKeyBack
  severity: critical
  for: 0m
  expr: max by (namespace, key_set) (keypost_watch_store_went_back{ {{- $of }},gone_key_published="true"}) == 1
  summary: The store went back, and a revoked or removed key is active again
  description: "{{`The store holds a version of key set {{ $labels.key_set }} that publishes a key which was revoked or removed: a backup was restored, or an old manifest applied. A keypostd that starts now serves the key. The log of the watch names it.`}}"
- alert: KeypostStoreWentBack
  severity: warning
  for: 0m
  expr: max by (namespace, key_set) (keypost_watch_store_went_back{ {{- $of }},gone_key_published="false"}) == 1
  summary: The store holds an older version of a key set than before
  description: "{{`The store held a later version of key set {{ $labels.key_set }} before: a backup was restored, or an old manifest applied. Servers that know the later version refuse this one.`}}"
- alert: KeypostPublicCertificateExpiring
  severity: warning
  for: 1h
  expr: min by (namespace, key_set, issuer) (keypost_watch_certificate_not_after_timestamp_seconds{ {{- $of }}}) - time() < {{ int $rules.certificateDays }} * 86400
  summary: The TLS certificate that the public sees expires soon
  description: "{{`That of {{ $labels.issuer }} (key set {{ $labels.key_set }}) expires in {{ $value | humanizeDuration }}. Then no relying party accepts any of its tokens.`}}"
- alert: KeypostPublicCertificateExpiringSoon
  severity: critical
  for: 5m
  expr: min by (namespace, key_set, issuer) (keypost_watch_certificate_not_after_timestamp_seconds{ {{- $of }}}) - time() < 2 * 86400
  summary: The TLS certificate that the public sees expires within two days, or has
  description: "{{`That of {{ $labels.issuer }} (key set {{ $labels.key_set }}) expires in {{ $value | humanizeDuration }}. Then no relying party accepts any of its tokens.`}}"
- alert: KeypostObservationStale
  severity: warning
  for: 5m
  expr: time() - max by (namespace, key_set, issuer) (keypost_watch_last_complete_look_timestamp_seconds{ {{- $of }}}) > {{ int $rules.observationSeconds }}
  summary: An issuer has not been seen whole for long
  description: "{{`{{ $labels.issuer }} (key set {{ $labels.key_set }}) has had no complete look for {{ $value | humanizeDuration }}: some address does not answer, or is not public. Its promotions wait, and a stranger's key could be missed.`}}"
- alert: KeypostUploadBehind
  severity: warning
  for: 15m
  expr: max by (namespace, key_set, upload, reason) (keypost_watch_upload_failing{ {{- $of }}}) == 1
  summary: The keys that were uploaded to a relying party may not be what is published
  description: "{{`The upload {{ $labels.upload }} of key set {{ $labels.key_set }} is not known to have the published keys ({{ $labels.reason }}): tokens signed with a key that it does not have are refused there, and a key that was taken out, or is somebody else's, may be trusted.`}}"
- alert: KeypostWatchBlind
  severity: warning
  for: 15m
  expr: max by (namespace, key_set) (keypost_watch_look_failing{ {{- $of }},reason="not_compared"}) == 1 or max by (namespace) (keypost_watch_store_failing{ {{- $of }}}) == 1
  summary: What is published cannot be compared with the store
  description: "{{`The watch cannot read {{ with $labels.key_set }}key set {{ . }}{{ else }}the store{{ end }}. A stranger's key would not be noticed.`}}"
- alert: KeypostWatchDown
  severity: warning
  for: 10m
  expr: absent(up{ {{- $of }},endpoint="watch"} == 1)
  summary: Nobody watches the issuers
  description: keypost watch does not answer. A stranger's key would not be noticed.
{{- end }}

{{- /* keypost.enrollAlerts: those of keypost enroll. A pod that restarts begins to count anew, so metrics of a whole day are asked. */ -}}
{{- define "keypost.enrollAlerts" -}}
{{- $of := .of }}
- alert: KeypostClusterUnreachable
  severity: warning
  for: 5m
  expr: |-
    max by (namespace, cluster) (max_over_time(keypost_enroll_cluster{ {{- $of }},state="unreachable"}[15m]))
    and max by (namespace, cluster) (max_over_time(keypost_enroll_cluster{ {{- $of }},state="unreachable"}[1h] offset 23h))
    unless max by (namespace, cluster) (max_over_time(keypost_enroll_cluster{ {{- $of }},state!="unreachable"}[1d]))
  summary: A cluster has not answered for a day
  description: "{{`Cluster {{ $labels.cluster }} does not answer keypost enroll. Nothing changes for its issuer, but a new signing key of it would not be published.`}}"
- alert: KeypostClusterRefused
  severity: warning
  for: 15m
  expr: max by (namespace, cluster) (keypost_enroll_cluster{ {{- $of }},state="refused"}) == 1
  summary: A cluster is not enrolled as it is
  description: "{{`What cluster {{ $labels.cluster }} shows, or who it is, is not taken. Its issuer stays as it is, and a new signing key of it is not published. The log of keypost enroll says why.`}}"
- alert: KeypostNewKeyUnseen
  severity: warning
  for: 15m
  expr: |-
    time() - max by (namespace, cluster) (keypost_enroll_cluster_since_timestamp_seconds{ {{- $of }}}) > 86400
    and max by (namespace, cluster) (keypost_enroll_cluster{ {{- $of }},state="new key"}) == 1
  summary: A cluster's new key has waited for a day
  description: "{{`A key of cluster {{ $labels.cluster }} has been next for {{ $value | humanizeDuration }}: it was not seen at every public address, or nobody promotes it. If the cluster signs with it, relying parties with an old copy refuse its tokens.`}}"
- alert: KeypostEnrollFailing
  severity: warning
  for: 15m
  expr: absent(up{ {{- $of }},endpoint="enroll"} == 1) or max by (namespace) (keypost_enroll_failing{ {{- $of }}}) == 1
  summary: Clusters are not followed
  description: keypost enroll does not answer, or cannot read its source or the store. New clusters and new keys are not published.
{{- end }}
