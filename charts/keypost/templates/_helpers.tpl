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

{{- define "keypost.checks" -}}
{{- if not .Values.issuerURLs }}{{ fail "issuerURLs is empty: say which key set may have which URL, such as https://oidc.example.com/{name}" }}{{ end }}
{{- if and (eq .Values.store.type "configMap") (not .Values.store.configMap.name) }}{{ fail "store.configMap.name is not set" }}{{ end }}
{{- if and (eq .Values.store.type "configMap") (eq .Values.volume.type "claim") }}{{ fail "volume.type claim has no use with store.type configMap: the ConfigMap is mounted itself" }}{{ end }}
{{- if and .Values.certificate.enabled (eq .Values.tls.mode "off") }}{{ fail "certificate.enabled needs tls.mode files" }}{{ end }}
{{- if and .Values.route.enabled (eq .Values.route.termination "edge") (ne .Values.tls.mode "off") }}{{ fail "route.termination edge needs tls.mode off; or use passthrough or reencrypt" }}{{ end }}
{{- if and .Values.route.enabled (ne .Values.route.termination "edge") (eq .Values.tls.mode "off") }}{{ fail "route.termination passthrough and reencrypt need tls.mode files; or use edge" }}{{ end }}
{{- if and .Values.gateway.httpRoute.enabled (ne .Values.tls.mode "off") }}{{ fail "gateway.httpRoute needs tls.mode off, since the gateway ends TLS; or use gateway.tlsRoute" }}{{ end }}
{{- if and .Values.gateway.tlsRoute.enabled (eq .Values.tls.mode "off") }}{{ fail "gateway.tlsRoute needs tls.mode files" }}{{ end }}
{{- end }}
