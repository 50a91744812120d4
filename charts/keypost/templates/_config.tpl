{{- define "keypost.config" -}}
dir: /var/lib/keypost
issuerURLs: {{ toJson .Values.issuerURLs }}
listen:
  address: ":8443"
  maxConnections: {{ .Values.maxConnections }}
  drainDelay: {{ .Values.drainDelaySeconds }}s
  drainTimeout: {{ .Values.drainTimeoutSeconds }}s
  tls:
    {{- if eq .Values.tls.mode "off" }}
    mode: "off"
    {{- else }}
    mode: files
    files: [{cert: /etc/keypost/tls/tls.crt, key: /etc/keypost/tls/tls.key}]
    {{- end }}
  {{- with .Values.shield }}
  {{- if ne (empty .header) (empty .secretName) }}{{ fail "shield.header and shield.secretName go together" }}{{ end }}
  {{- if or .header .clientCAConfigMap }}
  shield:
    {{- if .header }}
    header: {{ .header | quote }}
    secretFiles:
      {{- range .keys }}
      - /etc/keypost/shield/{{ . }}
      {{- end }}
    {{- end }}
    {{- if .clientCAConfigMap }}
    clientCAFile: /etc/keypost/shield-ca/ca.crt
    {{- end }}
  {{- end }}
  {{- end }}
admin: {address: ":9090", probes: ":9092"{{ if .Values.admin.page }}, page: true{{ end }}}
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
