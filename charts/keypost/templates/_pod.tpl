{{- define "keypost.pod" -}}
{{- if include "keypost.mirrored" . -}}
serviceAccountName: {{ include "keypost.serviceAccount" . }}
{{ end -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "keypost.grace" . }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "keypost.podSecurity" . | nindent 2 }}
{{- if include "keypost.mirrored" . }}
initContainers: {{- include "keypost.mirror" . | nindent 2 }}
{{- end }}
containers:
  - name: keypostd
    image: {{ include "keypost.image" (list . .Values.image.keypostd) }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [--config, /etc/keypost/keypostd.yaml]
    {{- with .Values.extraEnv }}
    env: {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - {name: public, containerPort: 8443}
      - {name: admin, containerPort: 9090}
      - {name: probes, containerPort: 9092} # the NetworkPolicy opens it to nobody; the kubelet always gets through
    startupProbe:
      httpGet: {path: /livez, port: probes}
      {{- include "keypost.probe" (list .Values.startupProbe (dict "periodSeconds" 1 "failureThreshold" 60)) | nindent 6 }}
    readinessProbe:
      httpGet: {path: /readyz, port: probes}
      {{- include "keypost.probe" (list .Values.readinessProbe (dict "periodSeconds" 2 "failureThreshold" 1)) | nindent 6 }}
    livenessProbe: # generous: a restart loses what a busy server still serves
      httpGet: {path: /livez, port: probes}
      {{- include "keypost.probe" (list .Values.livenessProbe (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6)) | nindent 6 }}
    securityContext: {{- include "keypost.containerSecurity" . | nindent 6 }}
    resources: {{- toYaml .Values.resources | nindent 6 }}
    volumeMounts:
      - {name: config, mountPath: /etc/keypost/keypostd.yaml, subPath: keypostd.yaml, readOnly: true}
      - {name: keysets, mountPath: /var/lib/keypost, readOnly: true}
      {{- if ne .Values.tls.mode "off" }}
      - {name: tls, mountPath: /etc/keypost/tls, readOnly: true} # no subPath: it is replaced while keypostd runs
      {{- end }}
      {{- if .Values.shield.secretName }}
      - {name: shield, mountPath: /etc/keypost/shield, readOnly: true}
      {{- end }}
      {{- if .Values.shield.clientCAConfigMap }}
      - {name: shield-ca, mountPath: /etc/keypost/shield-ca, readOnly: true}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "keypost.fullname" . }}}
  {{- if ne .Values.tls.mode "off" }}
  - name: tls
    secret: {secretName: {{ include "keypost.tlsSecret" . }}, defaultMode: 288} # 0440
  {{- end }}
  {{- with .Values.shield.secretName }}
  - name: shield
    secret: {secretName: {{ . }}, defaultMode: 288} # 0440
  {{- end }}
  {{- with .Values.shield.clientCAConfigMap }}
  - name: shield-ca
    configMap: {name: {{ . }}}
  {{- end }}
  {{- if not (include "keypost.mirrored" .) }}
  - name: keysets
    configMap: {name: {{ .Values.store.configMap.name }}}
  {{- else if not (include "keypost.stateful" .) }}
  - name: keysets
    emptyDir: {sizeLimit: {{ .Values.volume.size }}}
  {{- end }}
  {{- with include "keypost.storeVolumes" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else if .Values.topologyKeys }}
topologySpreadConstraints:
  {{- range .Values.topologyKeys }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "keypost.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The mirror is a native sidecar: keypostd starts once its copy is complete, so that a half-filled directory is
never listed as if it were everything. After that the mirror's state never takes the pod out of service. */ -}}
{{- define "keypost.mirror" -}}
- name: mirror
  image: {{ include "keypost.image" (list . .Values.image.keypost) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - mirror
    - --store
    - {{ include "keypost.storeURL" . | quote }}
    - --admin-address
    - ":9091"
    {{- range .Values.issuerURLs }}
    - {{ printf "--issuer-url=%s" . | quote }}
    {{- end }}
    {{- if .Values.allowEmpty }}
    - --allow-empty
    {{- end }}
    {{- range .Values.mirror.extraArgs }}
    - {{ . | quote }}
    {{- end }}
    - /var/lib/keypost
  ports:
    - {name: mirror, containerPort: 9091}
  env:
    {{- include "keypost.storeEnv" . | nindent 4 }}
    {{- with .Values.mirror.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "keypost.storeSecret" . }}
  envFrom:
    - secretRef: {name: {{ . }}}
  {{- end }}
  startupProbe: # passes with a complete copy, be it an earlier run's; a restart would gain nothing, so it may take a day
    httpGet: {path: /readyz, port: mirror}
    periodSeconds: 1
    failureThreshold: 86400
  securityContext: {{- include "keypost.containerSecurity" . | nindent 4 }}
  resources: {{- toYaml .Values.mirror.resources | nindent 4 }}
  volumeMounts:
    - {name: keysets, mountPath: /var/lib/keypost}
    {{- with include "keypost.storeMount" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.mirror.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* How the store is read: by the mirror, and by the watch. */ -}}
{{- define "keypost.storeEnv" -}}
- {name: HOME, value: /nonexistent}
{{- if eq .Values.store.type "s3" }}
{{- with .Values.store.s3.webIdentity.roleARN }}
- {name: AWS_ROLE_ARN, value: {{ . | quote }}}
- {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /var/run/secrets/aws/token}
{{- end }}
{{- end }}
{{- end }}

{{- define "keypost.storeSecret" -}}
{{- if eq .Values.store.type "s3" }}{{ .Values.store.s3.credentialsSecret }}{{ end }}
{{- end }}

{{- define "keypost.storeMount" -}}
{{- if eq .Values.store.type "kubernetes" -}}
- {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- else if and (eq .Values.store.type "s3") .Values.store.s3.webIdentity.roleARN -}}
- {name: token, mountPath: /var/run/secrets/aws, readOnly: true}
{{- end }}
{{- end }}

{{- define "keypost.storeVolumes" -}}
{{- if eq .Values.store.type "kubernetes" -}}
{{ include "keypost.kubernetesToken" "token" }}
{{- else if and (eq .Values.store.type "s3") .Values.store.s3.webIdentity.roleARN -}}
{{ include "keypost.awsToken" (list "token" .Values.store.s3.webIdentity.audience) }}
{{- end }}
{{- end }}

{{- define "keypost.kubernetesToken" -}}
- name: {{ . }}
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- /* keypost.awsToken takes a name and an audience. */ -}}
{{- define "keypost.awsToken" -}}
- name: {{ index . 0 }}
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600, audience: {{ index . 1 | quote }}}
{{- end }}
