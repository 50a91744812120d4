{{- define "keypost.config" -}}
dir: /var/lib/keypost
issuerURLs: {{ toJson .Values.issuerURLs }}
listen:
  address: ":8443"
  maxConnections: {{ .Values.maxConnections }}
  http2: {{ .Values.http2 }}
  drainDelay: {{ .Values.drainDelaySeconds }}s
  drainTimeout: {{ .Values.drainTimeoutSeconds }}s
  tls:
    {{- if eq .Values.tls.mode "off" }}
    mode: "off"
    {{- else }}
    mode: files
    files: [{cert: /etc/keypost/tls/tls.crt, key: /etc/keypost/tls/tls.key}]
    {{- end }}
admin: {address: ":9090", probes: ":9092"}
{{- with .Values.policy }}
policy: {{ toJson . }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{ toJson . }}
{{- end }}
{{- if .Values.allowEmpty }}
allowEmpty: true
{{- end }}
log: {{ toJson .Values.log }}
{{- end }}
