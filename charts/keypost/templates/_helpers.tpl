{{- define "keypost.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- end }}

{{- define "keypost.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keypost.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "keypost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* keypost.image takes the root and one of the images. */ -}}
{{- define "keypost.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}
{{- else }}{{ $image.repository }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "keypost.openshift" -}}
{{- if or (eq .Values.platform "openshift") (and (eq .Values.platform "") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}true{{ end }}
{{- end }}

{{- define "keypost.mirrored" -}}{{ if ne .Values.store.type "configMap" }}true{{ end }}{{- end }}

{{- define "keypost.stateful" -}}{{ if and (include "keypost.mirrored" .) (eq .Values.volume.type "claim") }}true{{ end }}{{- end }}

{{- define "keypost.storeNamespace" -}}{{ default .Release.Namespace .Values.store.kubernetes.namespace }}{{- end }}

{{- define "keypost.storeURL" -}}
{{- if eq .Values.store.type "kubernetes" }}kubernetes://{{ include "keypost.storeNamespace" . }}
{{- else }}{{ required "store.s3.url is not set: s3://BUCKET/PREFIX?region=REGION" .Values.store.s3.url }}{{ end }}
{{- end }}

{{- define "keypost.tlsSecret" -}}{{ default (printf "%s-tls" (include "keypost.fullname" .)) .Values.tls.secretName }}{{- end }}

{{- /* keypost.hosts: a JSON list of the host names to accept, without duplicates; {name} becomes a wildcard. */ -}}
{{- define "keypost.hosts" -}}
{{- $hosts := .Values.hosts }}
{{- if not $hosts }}
{{- range .Values.issuerURLs }}
{{- $host := regexReplaceAll "^([^=]*=)?https://([^/]*).*$" . "${2}" | replace "{name}" "*" }}
{{- $hosts = append $hosts $host }}
{{- end }}
{{- range $from, $to := .Values.hostAliases }}{{ $hosts = append $hosts $from }}{{ end }}
{{- end }}
{{- $hosts | uniq | toJson }}
{{- end }}

{{- define "keypost.grace" -}}{{ add .Values.drainDelaySeconds .Values.drainTimeoutSeconds 5 }}{{- end }}

{{- define "keypost.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* On OpenShift the SCC restricted-v2 chooses uid and fsGroup and refuses others. */ -}}
{{- define "keypost.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- if not (include "keypost.openshift" .) }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end }}

{{- define "keypost.serviceAccount" -}}
{{- default (include "keypost.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "keypost.watchAccount" -}}
{{- if eq .Values.watch.observations "kubernetes" }}{{ include "keypost.fullname" . }}-watch{{ else }}{{ include "keypost.serviceAccount" . }}{{ end }}
{{- end }}

{{- /* keypost.seconds: a duration such as 1h30m in seconds. */ -}}
{{- define "keypost.seconds" -}}
{{- $sum := 0.0 }}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 }}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 }}
{{- $number := regexFind "^[0-9.]+" . }}
{{- $sum = addf $sum (mulf (float64 $number) (get $units (trimPrefix $number .))) }}
{{- end }}
{{- $sum }}
{{- end }}

{{- /* keypost.elsewhere: what other charts call otherwise. values.schema.json lets these names pass so that this says
where to look. */ -}}
{{- define "keypost.elsewhere" -}}
{{- $v := .Values }}
{{- range $name, $there := dict
  "replicaCount" "replicas" "env" "extraEnv, or mirror.env" "args" "mirror.extraArgs; keypostd has values of its own for everything"
  "extraArgs" "mirror.extraArgs; keypostd has values of its own for everything" "persistence" "volume" "storage" "volume"
  "metrics" "monitoring" "prometheus" "monitoring" "serviceMonitor" "monitoring.serviceMonitor" "pdb" "podDisruptionBudget" "pullSecrets" "imagePullSecrets" }}
{{- if hasKey $v $name }}{{ fail (printf "%s is called otherwise here: use %s" $name $there) }}{{ end }}
{{- end }}
{{- range $name, $why := dict
  "autoscaling" "set replicas: one replica answers tens of thousands of requests per second"
  "podSecurityContext" "it is fixed, as the Pod Security Standard restricted asks for; see platform"
  "securityContext" "it is fixed, as the Pod Security Standard restricted asks for; see platform"
  "extraVolumes" "keypostd sees its configuration, its certificate and its key sets, and no more"
  "volumes" "keypostd sees its configuration, its certificate and its key sets, and no more" }}
{{- if hasKey $v $name }}{{ fail (printf "there is no %s: %s" $name $why) }}{{ end }}
{{- end }}
{{- range $name := list "repository" "tag" "digest" }}
{{- if hasKey $v.image $name }}{{ fail (printf "there are two images: use image.keypostd.%s and image.keypost.%s, not image.%s" $name $name $name) }}{{ end }}
{{- end }}
{{- range $name, $there := dict "hosts" "hosts, beside ingress" "ingressClassName" "ingress.className" "tls" "ingress.tlsSecretName" }}
{{- if hasKey $v.ingress $name }}{{ fail (printf "ingress.%s is called otherwise here: use %s" $name $there) }}{{ end }}
{{- end }}
{{- end }}

{{- define "keypost.checks" -}}
{{- include "keypost.elsewhere" . }}
{{- if not .Values.issuerURLs }}{{ fail "issuerURLs is empty: set issuerURLs, which says which key set may have which URL, in a file of your own (issuerURLs: [\"https://oidc.example.com/{name}\"]), and give that file with -f, after a preset, at the installation and at every upgrade" }}{{ end }}
{{- include "keypost.checkIssuerURLs" . }}
{{- if and (eq .Values.store.type "configMap") (not .Values.store.configMap.name) }}{{ fail "store.configMap.name is not set" }}{{ end }}
{{- if and (eq .Values.store.type "configMap") (eq .Values.volume.type "claim") }}{{ fail "volume.type claim has no use with store.type configMap: the ConfigMap is mounted itself" }}{{ end }}
{{- if and (include "keypost.mirrored" .) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}{{ fail "serviceAccount.create is false, so serviceAccount.name must say which one the mirror uses" }}{{ end }}
{{- include "keypost.checkPolicy" . }}
{{- include "keypost.checkTLS" . }}
{{- include "keypost.checkWorkload" . }}
{{- end }}

{{- /* What keypostd says of a pattern, in its words; it would not start. */ -}}
{{- define "keypost.checkIssuerURLs" -}}
{{- range .Values.issuerURLs }}
{{- $bound := contains "=" . }}
{{- $holes := sub (len (splitList "{name}" .)) 1 }}
{{- if or (gt $holes 1) (eq (eq $holes 1) $bound) }}{{ fail (printf "issuer URL pattern %q: put {name} into it once, or write NAME=URL to bind one URL to one key set" .) }}{{ end }}
{{- if and (not $bound) (not (regexMatch "[/.][{]name[}]([./:]|$)" .)) }}{{ fail (printf "issuer URL pattern %q: {name} must be a whole part between dots or slashes, or two names could meet in one URL" .) }}{{ end }}
{{- end }}
{{- end }}

{{- /* The bounds that keypostd has; it would not start. */ -}}
{{- define "keypost.checkPolicy" -}}
{{- with .Values.policy.maxAge }}
{{- $s := include "keypost.seconds" . | float64 }}
{{- if or (lt $s 60.0) (gt $s 86400.0) }}{{ fail (printf "policy.maxAge is %s; it must be from 1m to 24h" .) }}{{ end }}
{{- end }}
{{- range $name := list "staleWhileRevalidate" "staleIfError" }}
{{- with get $.Values.policy $name }}
{{- if gt (include "keypost.seconds" . | float64) 604800.0 }}{{ fail (printf "policy.%s is %s; it must be at most 168h" $name .) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "keypost.checkTLS" -}}
{{- $off := eq .Values.tls.mode "off" }}
{{- if and .Values.certificate.enabled $off }}{{ fail "certificate.enabled needs tls.mode files" }}{{ end }}
{{- if and .Values.route.enabled (eq .Values.platform "kubernetes") }}{{ fail "route.enabled needs OpenShift, and platform is kubernetes; use ingress or gateway" }}{{ end }}
{{- if and .Values.route.enabled (eq .Values.route.termination "edge") (not $off) }}{{ fail "route.termination edge needs tls.mode off; or use passthrough or reencrypt" }}{{ end }}
{{- if and .Values.route.enabled (ne .Values.route.termination "edge") $off }}{{ fail "route.termination passthrough and reencrypt need tls.mode files; or use edge" }}{{ end }}
{{- if and .Values.gateway.httpRoute.enabled (not $off) }}{{ fail "gateway.httpRoute needs tls.mode off, since the gateway ends TLS; or use gateway.tlsRoute" }}{{ end }}
{{- if and .Values.gateway.tlsRoute.enabled $off }}{{ fail "gateway.tlsRoute needs tls.mode files" }}{{ end }}
{{- /* A controller speaks plain HTTP to a Service unless an annotation of its own says otherwise. */ -}}
{{- $https := regexMatch "passthrough|backend-protocol|backend-config|serversscheme|server-ssl" (printf "%v %v" .Values.ingress.annotations .Values.service.annotations) }}
{{- if and .Values.ingress.enabled (not $off) (not $https) }}{{ fail "ingress needs tls.mode off, since its controller ends TLS and asks keypostd in plain HTTP; or say with the controller's own annotation that it passes TLS through or speaks HTTPS to the Service" }}{{ end }}
{{- end }}

{{- /* Helm deletes the old workload as soon as it has made the new one, before that is ready: an outage. With the old
one orphaned its pods go on serving behind the same Service. Without a cluster (helm template, GitOps) lookup finds nothing. */ -}}
{{- define "keypost.checkWorkload" -}}
{{- $name := include "keypost.fullname" . }}
{{- $was := ternary "Deployment" "StatefulSet" (ne (include "keypost.stateful" .) "") }}
{{- $old := lookup "apps/v1" $was .Release.Namespace $name }}
{{- if and $old (eq (dig "metadata" "labels" "app.kubernetes.io/instance" "" $old) .Release.Name) }}
{{- fail (printf "volume.type (or store.type) now needs another kind of workload, and an upgrade would delete %s %s at once, an outage: first run kubectl -n %s delete %s %s --cascade=orphan, whose pods go on serving; then upgrade; see README.md, Upgrades" $was $name .Release.Namespace (lower $was) $name) }}
{{- end }}
{{- end }}
