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

{{- /* keypost.watchWrites: the watch writes objects of the cluster, and so has an account of its own. */ -}}
{{- define "keypost.watchWrites" -}}{{ if eq .Values.watch.observations "kubernetes" }}true{{ end }}{{- end }}

{{- define "keypost.watchAccount" -}}
{{- if include "keypost.watchWrites" . }}{{ include "keypost.fullname" . }}-watch{{ else }}{{ include "keypost.serviceAccount" . }}{{ end }}
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

{{- /* keypost.elsewhere: what other charts have under other names, or have and this one has not. values.schema.json lets these
names pass so that this says where to look. */ -}}
{{- define "keypost.elsewhere" -}}
{{- range $path, $say := dict
  "alerts" "use monitoring.rules"
  "annotations" "use podAnnotations, or those of service, ingress, route and serviceAccount"
  "args" "keypostd has values of its own for everything; use mirror.extraArgs for the mirror"
  "automountServiceAccountToken" "only the mirror gets a token, by a projected volume; see serviceAccount"
  "autoscaling" "set replicas: one replica answers tens of thousands of requests per second"
  "cert-manager" "use certificate"
  "certManager" "use certificate"
  "command" "keypostd has values of its own for everything; use mirror.extraArgs for the mirror"
  "commonAnnotations" "use podAnnotations, or those of service, ingress, route and serviceAccount"
  "config" "keypostd has values of its own for everything; use mirror.extraArgs for the mirror"
  "dashboard" "use monitoring.dashboard"
  "deploymentAnnotations" "use podAnnotations, or those of service, ingress, route and serviceAccount"
  "deploymentStrategy" "use strategy"
  "domain" "use issuerURLs, and hosts where others are accepted"
  "env" "use extraEnv, or mirror.env"
  "envFrom" "use extraEnv, or mirror.env; store.s3.credentialsSecret for a Secret"
  "envVars" "use extraEnv, or mirror.env"
  "existingSecret" "use tls.secretName"
  "extraArgs" "keypostd has values of its own for everything; use mirror.extraArgs for the mirror"
  "extraContainers" "nothing else runs beside keypostd and its mirror, which share what is served"
  "extraDeploy" "the chart makes what it needs; use a chart of your own for more beside this one"
  "extraEnvFrom" "use extraEnv, or mirror.env; store.s3.credentialsSecret for a Secret"
  "extraEnvVars" "use extraEnv, or mirror.env"
  "extraInitContainers" "nothing else runs beside keypostd and its mirror, which share what is served"
  "extraManifests" "the chart makes what it needs; use a chart of your own for more beside this one"
  "extraObjects" "the chart makes what it needs; use a chart of your own for more beside this one"
  "extraVolumeMounts" "use mirror.extraVolumeMounts; keypostd sees its configuration, its certificate and its key sets, and no more"
  "grafana" "use monitoring.dashboard"
  "host" "use issuerURLs, and hosts where others are accepted"
  "hostNetwork" "it is fixed, as the Pod Security Standard restricted asks for; see platform"
  "hostname" "use issuerURLs, and hosts where others are accepted"
  "image.digest" "there are two images; use image.keypostd.digest and image.keypost.digest"
  "image.imagePullPolicy" "use image.pullPolicy"
  "image.pullSecrets" "use imagePullSecrets"
  "image.registry" "use image.keypostd.repository and image.keypost.repository"
  "image.repository" "there are two images; use image.keypostd.repository and image.keypost.repository"
  "image.tag" "there are two images; use image.keypostd.tag and image.keypost.tag"
  "imagePullPolicy" "use image.pullPolicy"
  "ingress.class" "use ingress.className"
  "ingress.extraHosts" "use hosts, beside ingress"
  "ingress.extraTls" "use ingress.tlsSecretName"
  "ingress.host" "use hosts, beside ingress"
  "ingress.hostname" "use hosts, beside ingress"
  "ingress.hosts" "use hosts, beside ingress"
  "ingress.ingressClassName" "use ingress.className"
  "ingress.labels" "use commonLabels"
  "ingress.path" "every path of the hosts goes to keypostd; see hosts"
  "ingress.pathType" "every path of the hosts goes to keypostd; see hosts"
  "ingress.paths" "every path of the hosts goes to keypostd; see hosts"
  "ingress.tls" "use ingress.tlsSecretName"
  "initContainers" "nothing else runs beside keypostd and its mirror, which share what is served"
  "installCRDs" "use crds.install"
  "issuer" "use issuerURLs, and hosts where others are accepted"
  "issuerURL" "use issuerURLs, and hosts where others are accepted"
  "kind" "use volume.type: claim makes a StatefulSet"
  "labels" "use commonLabels, or podLabels"
  "lifecycle" "keypostd drains by itself; use drainDelaySeconds"
  "logLevel" "use log.level"
  "metrics" "use monitoring"
  "minReadySeconds" "it is fixed; use strategy for what else is rolled out how"
  "mode" "use volume.type, or tls.mode"
  "pdb" "use podDisruptionBudget"
  "persistence" "use volume"
  "podAntiAffinity" "use affinity, or topologyKeys"
  "podSecurityContext" "it is fixed, as the Pod Security Standard restricted asks for; see platform"
  "probes" "use startupProbe, readinessProbe and livenessProbe, for their times"
  "prometheus" "use monitoring"
  "prometheusRule" "use monitoring.rules"
  "pullSecrets" "use imagePullSecrets"
  "registry" "use image.keypostd.repository and image.keypost.repository"
  "replicaCount" "use replicas"
  "revisionHistoryLimit" "it is fixed; use strategy for what else is rolled out how"
  "rollingUpdate" "use strategy"
  "securityContext" "it is fixed, as the Pod Security Standard restricted asks for; see platform"
  "service.clusterIP" "the cluster chooses it; use service.type"
  "service.externalIPs" "use service.type"
  "service.labels" "use commonLabels"
  "service.loadBalancerIP" "use service.annotations, as your provider has it"
  "service.nodePorts" "use service.nodePort"
  "service.ports" "use service.port"
  "service.targetPort" "it is fixed; use service.port"
  "serviceAccount.automount" "only the mirror gets a token, by a projected volume; see serviceAccount"
  "serviceAccount.automountServiceAccountToken" "only the mirror gets a token, by a projected volume; see serviceAccount"
  "serviceAccount.labels" "use commonLabels"
  "serviceMonitor" "use monitoring.serviceMonitor"
  "sidecars" "nothing else runs beside keypostd and its mirror, which share what is served"
  "storage" "use volume"
  "terminationGracePeriodSeconds" "use drainDelaySeconds and drainTimeoutSeconds, from which it follows"
  "topologySpread" "use topologyKeys or topologySpreadConstraints"
  "updateStrategy" "use strategy"
  "volumeMounts" "use mirror.extraVolumeMounts; keypostd sees its configuration, its certificate and its key sets, and no more"
  "volumes" "use extraVolumes" }}
{{- $parts := splitList "." $path }}
{{- $in := $.Values }}{{ if eq (len $parts) 2 }}{{ $in = index $.Values (first $parts) }}{{ end }}
{{- if hasKey $in (last $parts) }}{{ fail (printf "there is no %s here: %s" $path $say) }}{{ end }}
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
{{- include "keypost.checkTogether" . }}
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

{{- /* What is right by itself and wrong beside another value: it would be ignored, or the API server would refuse it. */ -}}
{{- define "keypost.checkTogether" -}}
{{- $v := .Values }}
{{- if and $v.store.s3.url (ne $v.store.type "s3") }}{{ fail (printf "store.s3.url is set, and store.type is %s: set store.type to s3, or leave the URL out" $v.store.type) }}{{ end }}
{{- if and $v.store.configMap.name (ne $v.store.type "configMap") }}{{ fail (printf "store.configMap.name is set, and store.type is %s: set store.type to configMap, or leave the name out" $v.store.type) }}{{ end }}
{{- if and $v.store.s3.credentialsSecret $v.store.s3.webIdentity.roleARN }}{{ fail "store.s3.credentialsSecret and store.s3.webIdentity.roleARN: the mirror takes one of the two" }}{{ end }}
{{- if and $v.store.kubernetes.createNamespace (or (ne $v.store.type "kubernetes") (not $v.store.kubernetes.namespace)) }}{{ fail "store.kubernetes.createNamespace needs store.type kubernetes and store.kubernetes.namespace; Helm makes the release's with --create-namespace" }}{{ end }}
{{- if and (eq $v.service.type "ClusterIP") $v.service.nodePort }}{{ fail "service.nodePort needs service.type NodePort or LoadBalancer" }}{{ end }}
{{- if and (eq $v.service.type "ClusterIP") $v.service.externalTrafficPolicy }}{{ fail "service.externalTrafficPolicy needs service.type NodePort or LoadBalancer" }}{{ end }}
{{- if and (ne $v.service.type "LoadBalancer") (or $v.service.loadBalancerSourceRanges $v.service.loadBalancerClass) }}{{ fail "service.loadBalancerSourceRanges and loadBalancerClass need service.type LoadBalancer" }}{{ end }}
{{- range $values := list "commonLabels" "podLabels" }}
{{- range $label := list "app.kubernetes.io/name" "app.kubernetes.io/instance" }}
{{- if hasKey (get $v $values) $label }}{{ fail (printf "%s: %s is the chart's own: Services and the NetworkPolicy select pods by it; see nameOverride" $values $label) }}{{ end }}
{{- end }}
{{- end }}
{{- range $from, $to := $v.hostAliases }}
{{- if hasKey $v.hostAliases $to }}{{ fail (printf "hostAliases: %s leads to %s, which is an alias itself: name the host of the issuer URLs" $from $to) }}{{ end }}
{{- end }}
{{- if and $v.watch.observations (not $v.watch.enabled) }}{{ fail "watch.observations needs watch.enabled: nobody looks without it" }}{{ end }}
{{- if lt (include "keypost.seconds" $v.watch.every | float64) 5.0 }}{{ fail (printf "watch.every is %s; it must be at least 5s" $v.watch.every) }}{{ end }}
{{- if lt (include "keypost.seconds" $v.enroll.interval | float64) 5.0 }}{{ fail (printf "enroll.interval is %s; it must be at least 5s" $v.enroll.interval) }}{{ end }}
{{- with $v.monitoring.rules }}
{{- if ge (int .staleSeconds) (int .staleCriticalSeconds) }}{{ fail "monitoring.rules.staleSeconds must be below staleCriticalSeconds: the warning comes first" }}{{ end }}
{{- if ge (int .keyAgeWarningDays) (int .keyAgeCriticalDays) }}{{ fail "monitoring.rules.keyAgeWarningDays must be below keyAgeCriticalDays: the warning comes first" }}{{ end }}
{{- end }}
{{- if and $v.podDisruptionBudget.minAvailable (ne (toString $v.podDisruptionBudget.maxUnavailable) "1") }}{{ fail "podDisruptionBudget has minAvailable or maxUnavailable, not both" }}{{ end }}
{{- with $v.strategy.type }}
{{- $no := ternary "Recreate" "OnDelete" (ne (include "keypost.stateful" $) "") }}
{{- if eq . $no }}{{ fail (printf "strategy.type %s is not one of the %s that volume.type %s makes" . (ternary "StatefulSet" "Deployment" (ne (include "keypost.stateful" $) "")) $v.volume.type) }}{{ end }}
{{- end }}
{{- end }}

{{- /* keypost.probe: the times of a probe: ours, and those of the user in their place. */ -}}
{{- define "keypost.probe" -}}
{{- merge (dict) (index . 0) (index . 1) | toYaml }}
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
